package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	cells "github.com/jedib0t/go-pretty/v6/text"
	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"sexton/internal/config"
	"sexton/internal/operator"
	"sexton/internal/render"
)

// PrintJSON writes one document.
func (env *Env) PrintJSON(value any) error {
	encoder := json.NewEncoder(env.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Print writes a document with --json, and else what text writes for people, with the
// tables of package words aligned.
func (env *Env) Print(document any, text func(w io.Writer)) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	var lines strings.Builder
	text(&lines)
	if lines.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(env.Stdout, tables(lines.String(), width(env.Stdout)))
	return err
}

// width is that of a terminal, and 0 for all else.
func width(w io.Writer) (columns int) {
	if file, isFile := w.(*os.File); isFile && IsTerminal(file) {
		columns, _, _ = term.GetSize(int(file.Fd()))
	}
	return columns
}

// Erase empties a terminal for what is printed next. Where there is none, an empty line
// comes before it.
func (env *Env) Erase() {
	if IsTerminal(env.Stdout) && !env.Dumb() {
		env.Printf("\x1b[H\x1b[2J")
		return
	}
	env.Printf("\n")
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
func ChildText(child, database string) string {
	if database == "" {
		return child
	}
	return child + " (" + database + ")"
}

// columnGap is the space between two columns.
const columnGap = "  "

// tables aligns the cells of each run of lines with separators. A width above 0 is the
// width of the terminal: cells that do not fit continue below, between words only.
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
		if !strings.Contains(line, render.Separator) {
			flush()
			out.WriteString(line + "\n")
			continue
		}
		row := table.Row{}
		for cell := range strings.SplitSeq(line, render.Separator) {
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

// fit narrows the widest columns, none below its longest word, until the rows fit or no
// column can be narrower.
func fit(rows []table.Row, width int) (columns []table.ColumnConfig) {
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
			break // The terminal wraps the rows.
		}
		columns[widest].WidthMax--
	}
	return columns
}

// NewLogger writes coloured lines on a terminal and JSON in all other places, unless the
// configuration says which. On a terminal a short text stands for the statistics of a
// run.
func (env *Env) NewLogger(w io.Writer, settings config.Log) *slog.Logger {
	level := slog.LevelInfo
	// The configuration was checked; its names are slog's.
	_ = level.UnmarshalText([]byte(settings.Level))
	terminal := IsTerminal(w)
	if settings.Format == config.FormatText || settings.Format == config.FormatAuto && terminal {
		options := &tint.Options{Level: level, TimeFormat: "15:04:05Z", NoColor: !terminal || !env.Colour()}
		options.ReplaceAttr = func(_ []string, attr slog.Attr) slog.Attr {
			switch {
			case attr.Key == slog.TimeKey && attr.Value.Kind() == slog.KindTime:
				attr.Value = slog.TimeValue(attr.Value.Time().UTC()) // As all times in the terminal.
			case terminal:
				return digested(attr)
			}
			return attr
		}
		return slog.New(tint.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// Colour reports whether terminals may be given colours: https://no-color.org.
func (env *Env) Colour() bool { return env.Getenv("NO_COLOR") == "" && !env.Dumb() }

// Dumb reports whether terminals can do no more than print lines.
func (env *Env) Dumb() bool { return env.Getenv("TERM") == "dumb" }

// digested replaces statistics by what in them is not zero.
func digested(attr slog.Attr) slog.Attr {
	stats, is := attr.Value.Any().(json.RawMessage)
	var fields map[string]json.RawMessage
	if !is || json.Unmarshal(stats, &fields) != nil {
		return attr
	}
	var parts []string
	digest := operator.DigestOf(stats, "")
	for _, table := range digest.Tables {
		parts = append(parts, fmt.Sprintf("%s %d", table.Name, table.Rows))
	}
	if digest.MoreTables > 0 {
		parts = append(parts, render.Counted(digest.MoreTables, "more table"))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var n int64
		var list []json.RawMessage
		switch {
		case json.Unmarshal(fields[name], &n) == nil && n != 0 && name != "processed":
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		case json.Unmarshal(fields[name], &list) == nil && len(list) > 0:
			parts = append(parts, fmt.Sprintf("%s %d", name, len(list)))
		}
	}
	if len(parts) == 0 {
		return slog.Attr{}
	}
	return slog.String(attr.Key, render.Listed(parts))
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
