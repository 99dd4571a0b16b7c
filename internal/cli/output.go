package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
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
