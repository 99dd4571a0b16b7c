package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	cells "github.com/jedib0t/go-pretty/v6/text"
	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"sexton/internal/config"
	"sexton/internal/words"
)

// PrintJSON writes one document.
func (env *Env) PrintJSON(value any) error {
	encoder := json.NewEncoder(env.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Print writes a document with --json, and else what text writes for people, with the tables of package words aligned.
func (env *Env) Print(document any, text func(w io.Writer)) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	var lines strings.Builder
	text(&lines)
	if lines.Len() == 0 {
		return nil
	}
	width := 0
	if file, isFile := env.Stdout.(*os.File); isFile && IsTerminal(file) {
		width, _, _ = term.GetSize(int(file.Fd()))
	}
	_, err := io.WriteString(env.Stdout, tables(lines.String(), width))
	return err
}

// Say writes a document with --json, and else the text for people.
func (env *Env) Say(document any, format string, args ...any) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	env.Printf(format, args...)
	return nil
}

// Printf writes to standard output.
func (env *Env) Printf(format string, args ...any) { _, _ = fmt.Fprintf(env.Stdout, format, args...) }

// Warn writes a warning to standard error.
func (env *Env) Warn(warning any) { _, _ = fmt.Fprintln(env.Stderr, "sexton: warning:", warning) }

// ChildText names a child, with its database where that is not the parent's.
func ChildText(child, elsewhere string) string {
	if elsewhere == "" {
		return child
	}
	return child + " (" + elsewhere + ")"
}

// columnGap is the space between two columns.
const columnGap = "  "

// tables aligns the cells of each run of lines with separators. A width above 0 is the width of the terminal: cells that do not fit
// continue below, between words only.
func tables(lines string, width int) string {
	var out strings.Builder
	var rows []table.Row
	flush := func() {
		if len(rows) > 0 {
			out.WriteString(aligned(rows, width))
			out.WriteByte('\n')
		}
		rows = nil
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\n"), "\n") {
		if !strings.Contains(line, words.Separator) {
			flush()
			out.WriteString(line + "\n")
			continue
		}
		row := table.Row{}
		for cell := range strings.SplitSeq(line, words.Separator) {
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	flush()
	return out.String()
}

func aligned(rows []table.Row, width int) string {
	style := table.StyleDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", columnGap
	style.Options = table.OptionsNoBordersAndSeparators
	writer := table.NewWriter()
	writer.SetStyle(style)
	writer.SuppressTrailingSpaces()
	writer.AppendRows(rows)
	if width > 0 {
		writer.SetColumnConfigs(fit(rows, width))
	}
	return writer.Render()
}

// fit narrows the widest columns, none below its longest word, until the rows fit or no column can be narrower.
func fit(rows []table.Row, width int) []table.ColumnConfig {
	var columns []table.ColumnConfig
	excess := -width
	for _, row := range rows {
		for i, cell := range row {
			if i == len(columns) {
				columns = append(columns, table.ColumnConfig{Number: i + 1, WidthMaxEnforcer: cells.WrapSoft})
				excess += len(columnGap)
			}
			content, _ := cell.(string)
			if own := cells.StringWidth(content); own > columns[i].WidthMax {
				excess += own - columns[i].WidthMax
				columns[i].WidthMax = own
			}
			for word := range strings.FieldsSeq(content) {
				columns[i].WidthMin = max(columns[i].WidthMin, cells.StringWidth(word))
			}
		}
	}
	// The last column needs no gap behind it.
	for excess -= len(columnGap); excess > 0; excess-- {
		widest := -1
		for i, column := range columns {
			if column.WidthMax > column.WidthMin && (widest < 0 || column.WidthMax > columns[widest].WidthMax) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		columns[widest].WidthMax--
	}
	return columns
}

// NewLogger writes coloured lines on a terminal and JSON elsewhere, unless the configuration says which.
func NewLogger(w io.Writer, settings config.Log) *slog.Logger {
	level := slog.LevelInfo
	// The configuration was checked; its names are slog's.
	_ = level.UnmarshalText([]byte(settings.Level))
	terminal := IsTerminal(w)
	if settings.Format == config.FormatText || settings.Format == config.FormatAuto && terminal {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
