package bench

import (
	"embed"
	"strings"
	texts "text/template"
)

//go:embed data
var data embed.FS

// source is data for a template.
type source struct {
	// create is the SQL of the tables, definitions are Sexton's, fill are the statements that fill the tables.
	create, definitions string
	fill                []string
}

// text is one of the texts about data, of a data set with its exported fields and methods.
func text(name string, of any) string {
	var out strings.Builder
	// They are parts of the program, and tests render each.
	parsed := texts.Must(texts.ParseFS(data, "data/"+name))
	texts.Must(parsed, parsed.Execute(&out, of))
	return out.String()
}

// statements are those of a text, which end with their lines.
func statements(name string, of any) []string {
	return strings.Split(strings.TrimSpace(text(name, of)), ";\n")
}
