package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sexton/internal/render"
)

// Report is the result of a benchmark. It is printed as a JSON document, or as tables
// with notes.
type Report struct {
	Row

	tables [][]Row
	notes  []string
}

// Row is a list of figures. It is printed as a JSON object, or as a line of a table.
type Row []Figure

// Figure is a number or a text in a report.
type Figure struct {
	// Key is the key in the JSON document. If it is empty, only the table has the figure.
	Key string
	// Head is the heading of the column in the table, and Format is the format of the
	// cell. If Format is empty, only the JSON document has the figure.
	Head, Format string
	// Value is nil if the value is unknown.
	Value any
}

// MarshalJSON returns an object with the keys in the order of the figures.
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

// cells returns the headings and the formatted values of the figures in the table.
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

// show adds a table. The headings are those of the first row. If all headings are empty,
// the table has no heading.
func (r *Report) show(rows ...Row) { r.tables = append(r.tables, rows) }

// notef adds a line after the tables.
func (r *Report) notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...)+"\n")
}

// Text writes the tables and then the notes.
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

// variantFigure returns the figure with the name of a variant. In the table, the name has
// spaces instead of underscores.
func variantFigure(key, name string) Row {
	return Row{{key, "", "", name}, {"", "variant", "%s", strings.ReplaceAll(name, "_", " ")}}
}

// mebibytes converts a size in bytes to MiB. It returns nil if the size is nil.
func mebibytes(size *int64) any {
	if size == nil {
		return nil
	}
	return float64(*size) / (1 << 20)
}
