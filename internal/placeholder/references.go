package placeholder

import (
	"fmt"
	"strings"

	"sexton/internal/pgcatalog"
)

// References are the configured columns, bound to one state of the database.
type References struct {
	columns []boundColumn
}

// boundColumn is one column that is looked at.
type boundColumn struct {
	// label is table.column for people, table the table as tombstones name it.
	label, table string
	// sample selects a text that names one row whose column is looked.user_id, or NULL.
	sample string
}

// bindColumn builds the look for one row. It stops at the first: LIMIT 1 on an index that begins with the column.
func bindColumn(label string, table *pgcatalog.Relation, column string) boundColumn {
	from := table.SQL()
	if table.Kind == "r" {
		// As with real foreign keys, tables that inherit from it are not its rows.
		from = "ONLY " + from
	}
	return boundColumn{
		label: label, table: table.Printed,
		sample: fmt.Sprintf("(SELECT %s FROM %s AS child WHERE child.%s OPERATOR(pg_catalog.=) looked.user_id LIMIT 1)",
			table.Shown("child"), from, pgcatalog.Quote(column)),
	}
}

// lookSQL is the one statement that looks at all columns, for the users $1: it returns each with an array of texts, NULL where no row
// refers to it.
func (r *References) lookSQL() string {
	samples := make([]string, len(r.columns))
	for i, c := range r.columns {
		samples[i] = c.sample
	}
	return "SELECT looked.user_id, ARRAY[" + strings.Join(samples, ",\n") + "]::pg_catalog.text[] FROM pg_catalog.unnest($1::bigint[]) AS looked (user_id)"
}

// blockers are the columns that refer to a user, from what lookSQL returned for it.
func (r *References) blockers(samples []*string) []Blocker {
	found := []Blocker{}
	for i, sample := range samples {
		if sample != nil {
			found = append(found, Blocker{Column: r.columns[i].label, Sample: *sample})
		}
	}
	return found
}
