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

// Print writes a document with --json, and otherwise the output of text.
func (env *Env) Print(document any, text func(w io.Writer)) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	var lines strings.Builder
	text(&lines)
	_, err := io.WriteString(env.Stdout, lines.String())
	return err
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
