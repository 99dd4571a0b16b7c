package pgschema

import (
	"io/fs"
	"regexp"
	"strings"
)

// Texts are the statements of a package, each in a file queries/NAME.sql. A name in braces stands for a part or, where there is none of the
// name, for the text of a file. What is no name of either stays.
type Texts struct {
	Files fs.FS
	Parts map[string]string
}

var braced = regexp.MustCompile(`\{[a-z_]+\}`)

// Statement is the text of a file, with further parts: each a name, followed by its text.
func (t Texts) Statement(name string, more ...string) string { return t.Fill("{"+name+"}", more...) }

// Fill puts parts and files in the place of their names in a text.
func (t Texts) Fill(text string, more ...string) string {
	return braced.ReplaceAllStringFunc(text, func(name string) string {
		key := name[1 : len(name)-1]
		for i := 0; i < len(more); i += 2 {
			if more[i] == key {
				return t.Fill(more[i+1], more...)
			}
		}
		if part, known := t.Parts[key]; known {
			return t.Fill(part, more...)
		}
		if file, err := fs.ReadFile(t.Files, "queries/"+key+".sql"); err == nil {
			return t.Fill(strings.TrimSuffix(string(file), "\n"), more...)
		}
		return name
	})
}
