package cli

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	cells "github.com/jedib0t/go-pretty/v6/text"

	"sexton/internal/words"
)

// columnGap is the space between two columns.
const columnGap = "  "

// tables aligns the cells of each run of lines with separators. A width above 0 is the width of the terminal: cells that do not fit
// continue below, between words only.
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
		if !strings.Contains(line, words.Separator) {
			flush()
			out.WriteString(line + "\n")
			continue
		}
		row := table.Row{}
		for cell := range strings.SplitSeq(line, words.Separator) {
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

// fit narrows the widest columns, none below its longest word, until the rows fit or no column can be narrower.
func fit(rows []table.Row, width int) []table.ColumnConfig {
	var columns []table.ColumnConfig
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
			break
		}
		columns[widest].WidthMax--
	}
	return columns
}
