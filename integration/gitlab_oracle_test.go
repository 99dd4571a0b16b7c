package integration

import (
	"fmt"
	"slices"
	"strconv"

	"sexton/internal/definitions"
)

// settle works out from the definitions what has to become of the rows once those marked dead are deleted:
// first which others have to go, and those that these take along, then which of the rest change.
func (f *forest) settle() {
	for again := true; again; {
		again = false
		for _, t := range f.tables {
			for _, row := range t.rows {
				if !row.dead && f.concerned(t, row, definitions.Delete) != nil {
					row.dead, again = true, true
				}
			}
		}
	}
	for _, t := range f.tables {
		for _, row := range t.rows {
			if row.dead {
				continue
			}
			for _, d := range f.concerned(t, row, definitions.Nullify) {
				delete(row.parents, d.Columns[0])
				row.changed = true
			}
			for _, d := range f.concerned(t, row, definitions.UpdateColumn) {
				value, _ := strconv.ParseInt(d.TargetValue, 10, 64)
				row.changed = row.changed || row.states[d.TargetColumn] != value
				row.states[d.TargetColumn] = value
			}
		}
	}
}

// concerned returns the definitions of one action by which a row depends on a dead parent.
func (f *forest) concerned(t *tree, row *leaf, action definitions.Action) []definitions.Definition {
	var found []definitions.Definition
	for _, d := range t.definitions {
		parent, refers := row.parents[d.Columns[0]]
		if d.OnDelete != action || !refers || !f.byName[d.Parent.String()].rows[parent-1].dead {
			continue
		}
		if !slices.ContainsFunc(d.Conditions, func(c definitions.Condition) bool { return row.texts[c.Column] != c.Value }) {
			found = append(found, d)
		}
	}
	return found
}

// expected is what content has to return in the end.
func (f *forest) expected() map[string][][]string {
	content := map[string][][]string{}
	for _, t := range f.tables {
		rows := [][]string{}
		for _, row := range t.rows {
			if row.dead {
				continue
			}
			var texts []string
			for _, value := range t.values(row) {
				if value == nil {
					value = "NULL"
				}
				texts = append(texts, fmt.Sprint(value))
			}
			written := "untouched"
			if row.changed {
				written = "written"
			}
			rows = append(rows, append(texts, written))
		}
		content[t.name] = rows
	}
	return content
}

// dead counts the dead rows per table, without tables that have none.
func (f *forest) dead() map[string]int64 {
	dead := map[string]int64{}
	for _, t := range f.tables {
		for _, row := range t.rows {
			if row.dead {
				dead[t.name]++
			}
		}
	}
	return dead
}

// tombstones counts the dead rows of parents.
func (f *forest) tombstones() int64 {
	var sum int64
	for name, dead := range f.dead() {
		if f.byName[name].parent {
			sum += dead
		}
	}
	return sum
}
