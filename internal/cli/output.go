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

// Print writes a document with --json, and else what text writes for people, as Table does.
func (env *Env) Print(document any, text func(w io.Writer)) error {
	if env.JSON {
		return env.PrintJSON(document)
	}
	return env.Table(text)
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

// Table writes aligned columns; the caller writes tab-separated lines, and a line without a tab ends a table.
func (env *Env) Table(write func(w io.Writer)) error {
	var lines strings.Builder
	write(&lines)
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

// ChildText names a child, with its database where that is not the parent's.
func ChildText(child, elsewhere string) string {
	if elsewhere == "" {
		return child
	}
	return child + " (" + elsewhere + ")"
}
