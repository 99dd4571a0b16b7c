package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sexton/internal/render"
)

// Report is the result of a benchmark: one JSON document, and for people tables with
// notes below them.
type Report struct {
	Row

	tables [][]Row
	notes  []string
}

// Row holds figures in their order: a JSON object, and a line of a table.
type Row []Figure

// Figure is a number or a text of a report.
type Figure struct {
	// Key is the JSON key; empty for a figure that only people see.
	Key string
	// Format is that of the cell in a table; empty for a figure that only the JSON
	// document has. Head is the heading of its column.
	Head, Format string
	// Value is nil if it is not known here.
	Value any
}

// MarshalJSON writes an object with the keys in the order of the figures.
func (r Row) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	separator := "{"
	for _, f := range r {
		if f.Key == "" {
			continue
		}
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", f.Key, err)
		}
		fmt.Fprintf(&out, "%s%q:%s", separator, f.Key, value)
		separator = ","
	}
	out.WriteString("}")
	return out.Bytes(), nil
}

// cells are the figures that people see.
func (r Row) cells() (heads []string, cells []any) {
	for _, f := range r {
		switch {
		case f.Format == "":
			continue
		case f.Value == nil:
			cells = append(cells, "")
		default:
			cells = append(cells, fmt.Sprintf(f.Format, f.Value))
		}
		heads = append(heads, f.Head)
	}
	return heads, cells
}

// show adds a table. Its headings are those of the first row; a table without headings
// has only lines.
func (r *Report) show(rows ...Row) { r.tables = append(r.tables, rows) }

// notef adds a line below the tables.
func (r *Report) notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...)+"\n")
}

// Text writes the tables, and then the notes.
func (r *Report) Text(w io.Writer) {
	for _, rows := range r.tables {
		heads, _ := rows[0].cells()
		heading := strings.Join(heads, "\t")
		if strings.TrimSpace(heading) == "" {
			heading = ""
		}
		render.Table(w, heading, rows, func(row Row) []any {
			_, cells := row.cells()
			return cells
		})
		_, _ = fmt.Fprintln(w)
	}
	_, _ = io.WriteString(w, strings.Join(r.notes, ""))
}

// variantFigure is the name of a variant by its key in JSON; people read it without
// underscores.
func variantFigure(key, name string) Row {
	return Row{{key, "", "", name}, {"", "variant", "%s", strings.ReplaceAll(name, "_", " ")}}
}

// mebibytes is nil where a size is not known.
func mebibytes(size *int64) any {
	if size == nil {
		return nil
	}
	return float64(*size) / (1 << 20)
}
