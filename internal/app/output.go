package app

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// printJSON writes one document.
func (a *app) printJSON(value any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.stdout, format, args...) }

// table writes aligned columns; the caller writes tab-separated lines, and a line without a tab ends a table.
func (a *app) table(write func(w io.Writer)) error {
	var lines strings.Builder
	write(&lines)
	if lines.Len() == 0 {
		return nil
	}
	width := 0
	if file, isFile := a.stdout.(*os.File); isFile && isTerminal(file) {
		width, _, _ = term.GetSize(int(file.Fd()))
	}
	_, err := io.WriteString(a.stdout, tables(lines.String(), width))
	return err
}
