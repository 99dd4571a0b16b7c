package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
)

// forest is every table of a set of definitions, with rows.
type forest struct {
	tables []*tree
	byName map[string]*tree
}

// tree is one table. Those whose names begin with p_ are partitioned by partition_id, as
// in GitLab; of the others that nothing refers to by key, every second has no primary
// key.
type tree struct {
	name        string
	partitioned bool
	keyed       bool
	parent      bool
	definitions []definitions.Definition
	// texts are the columns of conditions, states those of update_column_to.
	texts, states []string
	rows          []*leaf
}

// leaf is one row. Its id is unique in its table and recurs in all others, so that a
// mix-up of tables shows.
type leaf struct {
	id int64
	// parents, texts and states are values by column; a missing parent is NULL.
	parents map[string]int64
	texts   map[string]string
	states  map[string]int64
	note    string

	// Filled by the oracle: dead rows are gone, changed ones have other values than at
	// the beginning.
	dead, changed bool
	// xmin is the transaction that last wrote the row before the worker came.
	xmin string
}

const parentRows = 40

// plant makes the tables of the definitions and fills them. Every row that has a parent
// has a living one.
func plant(defs []definitions.Definition, random *rand.Rand) *forest {
	f := &forest{byName: map[string]*tree{}}
	for _, d := range defs {
		f.table(d.Parent.String()).parent = true
		t := f.table(d.Child.String())
		t.definitions = append(t.definitions, d)
		t.keyed = t.keyed || d.CleanerClass != ""
		if d.TargetColumn != "" && !slices.Contains(t.states, d.TargetColumn) {
			t.states = append(t.states, d.TargetColumn)
		}
		for _, condition := range d.Conditions {
			if !slices.Contains(t.texts, condition.Column) {
				t.texts = append(t.texts, condition.Column)
			}
		}
	}
	for i, t := range f.tables {
		t.keyed = t.keyed || t.parent || i%2 == 0
		rows := 30 * len(t.definitions)
		if t.parent {
			rows = max(rows, parentRows)
		}
		for id := range rows {
			t.rows = append(t.rows, &leaf{id: int64(id) + 1, note: fmt.Sprintf("%s %d", t.name, id)})
		}
	}
	for _, t := range f.tables {
		for _, row := range t.rows {
			f.fill(t, row, random)
		}
	}
	return f
}

func (f *forest) table(name string) *tree {
	t, ok := f.byName[name]
	if !ok {
		t = &tree{name: name, partitioned: strings.HasPrefix(name, "p_")}
		f.byName[name] = t
		f.tables = append(f.tables, t)
	}
	return t
}

func (f *forest) fill(t *tree, row *leaf, random *rand.Rand) {
	row.parents, row.texts, row.states = map[string]int64{}, map[string]string{}, map[string]int64{}
	for _, d := range t.definitions {
		if random.IntN(10) > 0 {
			rows := f.byName[d.Parent.String()].rows
			row.parents[d.Columns[0]] = rows[random.IntN(len(rows))].id
		}
		for _, condition := range d.Conditions {
			row.texts[condition.Column] = []string{string(condition.Value), "Other"}[random.IntN(2)]
		}
	}
	for _, column := range t.states {
		// Some are in the state already that the definition would give them.
		row.states[column] = []int64{0, 1, 2, 240}[random.IntN(4)]
	}
}

// ddl is the script that creates the table.
func (t *tree) ddl() string {
	name := quoteName(t.name)
	columns := []string{"id bigint NOT NULL"}
	key := "PRIMARY KEY (id)"
	if t.partitioned {
		columns, key = append(columns, "partition_id bigint NOT NULL"), "PRIMARY KEY (id, partition_id)"
	}
	for _, d := range t.definitions {
		columns = append(columns, quoteName(d.Columns[0])+" bigint")
	}
	for _, column := range t.texts {
		columns = append(columns, quoteName(column)+" text NOT NULL")
	}
	for _, column := range t.states {
		columns = append(columns, quoteName(column)+" smallint NOT NULL")
	}
	columns = append(columns, "note text NOT NULL")
	if t.keyed {
		columns = append(columns, key)
	}
	script := fmt.Sprintf("CREATE TABLE %s (%s)", name, strings.Join(columns, ", "))
	if t.partitioned {
		script += " PARTITION BY LIST (partition_id)"
		for i := range 2 {
			script += fmt.Sprintf(";\nCREATE TABLE %s PARTITION OF %s FOR VALUES IN (%d)", t.partition(i), name, i)
		}
	}
	for _, d := range t.definitions {
		script += fmt.Sprintf(";\nCREATE INDEX ON %s (%s)", name, quoteName(d.Columns[0]))
	}
	return script + ";\n"
}

func (t *tree) partition(i int) string { return quoteName(fmt.Sprintf("%s_%d", t.name, i)) }

// columns are those that the rows fill, in order.
func (t *tree) columns() []string {
	columns := []string{"id"}
	if t.partitioned {
		columns = append(columns, "partition_id")
	}
	for _, d := range t.definitions {
		columns = append(columns, d.Columns[0])
	}
	return append(slices.Concat(columns, t.texts, t.states), "note")
}

// values are those of one row in the order of columns.
func (t *tree) values(row *leaf) []any {
	values := []any{row.id}
	if t.partitioned {
		values = append(values, row.id%2)
	}
	for _, d := range t.definitions {
		if parent, ok := row.parents[d.Columns[0]]; ok {
			values = append(values, parent)
		} else {
			values = append(values, nil)
		}
	}
	for _, column := range t.texts {
		values = append(values, row.texts[column])
	}
	for _, column := range t.states {
		values = append(values, row.states[column])
	}
	return append(values, row.note)
}

// create makes and fills all tables.
func (f *forest) create(t *testing.T, db *pgtest.Database) {
	var script strings.Builder
	for _, table := range f.tables {
		script.WriteString(table.ddl())
	}
	db.Exec(script.String())
	for _, table := range f.tables {
		_, err := db.Pool().CopyFrom(t.Context(), pgx.Identifier{table.name}, table.columns(),
			pgx.CopyFromSlice(len(table.rows), func(i int) ([]any, error) { return table.values(table.rows[i]), nil }))
		require.NoError(t, err, "fill %s", table.name)
	}
	for _, table := range f.tables {
		for i, written := range db.Rows("SELECT xmin FROM " + quoteName(table.name) + " ORDER BY id") {
			table.rows[i].xmin = written[0]
		}
	}
}

// content returns every row of every table as text, and whether it was written since the
// beginning.
func (f *forest) content(db *pgtest.Database) map[string][][]string {
	content := map[string][][]string{}
	for _, table := range f.tables {
		columns := make([]string, len(table.columns()))
		for i, column := range table.columns() {
			columns[i] = quoteName(column)
		}
		rows := db.Rows(fmt.Sprintf("SELECT %s, xmin FROM %s ORDER BY id", strings.Join(columns, ", "),
			quoteName(table.name)))
		for _, row := range rows {
			id, _ := strconv.Atoi(row[0])
			written := "untouched"
			if row[len(row)-1] != table.rows[id-1].xmin {
				written = "written"
			}
			row[len(row)-1] = written
		}
		content[table.name] = rows
	}
	return content
}
