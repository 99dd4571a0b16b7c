package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"sexton/internal/config"
	"sexton/internal/operator"
	"sexton/internal/render"
)

// PrintJSON writes a JSON document to standard output.
func (env *Env) PrintJSON(value any) error {
	encoder := json.NewEncoder(env.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Print writes a document to standard output. With --json it is JSON, and otherwise the
// text that text writes.
func (env *Env) Print(document any, text func(w io.Writer)) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	var lines strings.Builder
	text(&lines)
	_, err := io.WriteString(env.Stdout, lines.String())
	return err
}

// PrintText writes a document to standard output. With --json it is JSON, and otherwise
// the formatted text.
func (env *Env) PrintText(document any, format string, args ...any) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	env.Printf(format, args...)
	return nil
}

// Printf writes formatted text to standard output.
func (env *Env) Printf(format string, args ...any) { _, _ = fmt.Fprintf(env.Stdout, format, args...) }

// Warn writes a warning to standard error.
func (env *Env) Warn(warning any) { _, _ = fmt.Fprintln(env.Stderr, "sexton: warning:", warning) }

// ChildText returns the name of a child table. If the child is in another database than
// its parent, the name of that database follows in brackets.
func ChildText(child, database string) string {
	if database == "" {
		return child
	}
	return child + " (" + database + ")"
}

// NewLogger returns a logger with the configured format. The format auto is colored text
// if w is a terminal, and JSON otherwise. On a terminal, the statistics of a run are
// shortened.
func (env *Env) NewLogger(w io.Writer, settings config.Log) *slog.Logger {
	level := slog.LevelInfo
	// UnmarshalText cannot fail: the configuration was validated, and slog has the same
	// level names.
	_ = level.UnmarshalText([]byte(settings.Level))
	terminal := IsTerminal(w)
	if settings.Format == config.FormatText || settings.Format == config.FormatAuto && terminal {
		options := &tint.Options{Level: level, TimeFormat: "15:04:05Z", NoColor: !terminal || !env.Color()}
		options.ReplaceAttr = func(_ []string, attr slog.Attr) slog.Attr {
			switch {
			case attr.Key == slog.TimeKey && attr.Value.Kind() == slog.KindTime:
				attr.Value = slog.TimeValue(attr.Value.Time().UTC())
			case terminal:
				return summarizeStats(attr)
			}
			return attr
		}
		return slog.New(tint.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// Color reports whether text on a terminal may have colors. NO_COLOR disables colors: see
// https://no-color.org.
func (env *Env) Color() bool { return env.Getenv("NO_COLOR") == "" && !env.Dumb() }

// Dumb reports whether the terminal cannot move its cursor.
func (env *Env) Dumb() bool { return env.Getenv("TERM") == "dumb" }

// summarizeStats replaces the JSON statistics of a run by a short text with the numbers
// that are not zero.
func summarizeStats(attr slog.Attr) slog.Attr {
	stats, is := attr.Value.Any().(json.RawMessage)
	if !is {
		return attr
	}
	digest := operator.DigestOf(stats, "")
	parts := render.Each(digest.Tables, func(t operator.TableCount) string { return fmt.Sprintf("%s %d", t.Name, t.Rows) })
	if digest.MoreTables > 0 {
		parts = append(parts, render.Counted(digest.MoreTables, "more table"))
	}
	if parts = append(parts, digest.Figures...); len(parts) == 0 {
		return slog.Attr{}
	}
	return slog.String(attr.Key, render.Listed(parts))
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
