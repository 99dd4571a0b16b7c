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

// tableModels holds all tables of a set of definitions with their rows.
type tableModels struct {
	tables []*tableModel
	byName map[string]*tableModel
}

// tableModel is one table. Tables whose names begin with p_ are partitioned by
// partition_id, as in GitLab. Of the tables to which no reference points, every second
// one has no primary key.
type tableModel struct {
	name        string
	partitioned bool
	keyed       bool
	parent      bool
	definitions []definitions.Definition
	// texts holds the columns that conditions compare. states holds the columns that
	// update_column_to changes.
	texts, states []string
	rows          []*rowModel
}

// rowModel is one row. The same ids occur in all tables, so that a confusion of tables is
// detected.
type rowModel struct {
	id int64
	// parents, texts and states hold values by column. A missing parent means NULL.
	parents map[string]int64
	texts   map[string]string
	states  map[string]int64
	note    string

	// applyDefinitions sets these fields. dead is true for rows that must be deleted.
	// changed is true for rows that must get other values than at the beginning.
	dead, changed bool
	// xmin is the transaction that last wrote the row before the worker ran.
	xmin string
}

const parentRows = 40

// newTableModels returns the tables of the definitions with random rows. The parents of
// all rows exist.
func newTableModels(defs []definitions.Definition, random *rand.Rand) *tableModels {
	f := &tableModels{byName: map[string]*tableModel{}}
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
			t.rows = append(t.rows, &rowModel{id: int64(id) + 1, note: fmt.Sprintf("%s %d", t.name, id)})
		}
	}
	for _, t := range f.tables {
		for _, row := range t.rows {
			f.fillRow(t, row, random)
		}
	}
	return f
}

func (f *tableModels) table(name string) *tableModel {
	t, ok := f.byName[name]
	if !ok {
		t = &tableModel{name: name, partitioned: strings.HasPrefix(name, "p_")}
		f.byName[name] = t
		f.tables = append(f.tables, t)
	}
	return t
}

func (f *tableModels) fillRow(t *tableModel, row *rowModel, random *rand.Rand) {
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
		// Some rows already have the value that the definition would set.
		row.states[column] = []int64{0, 1, 2, 240}[random.IntN(4)]
	}
}

// ddl returns SQL that creates the table with its partitions and indexes.
func (t *tableModel) ddl() string {
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

func (t *tableModel) partition(i int) string { return quoteName(fmt.Sprintf("%s_%d", t.name, i)) }

// columns returns the names of the columns in the order of values.
func (t *tableModel) columns() []string {
	columns := []string{"id"}
	if t.partitioned {
		columns = append(columns, "partition_id")
	}
	for _, d := range t.definitions {
		columns = append(columns, d.Columns[0])
	}
	return append(slices.Concat(columns, t.texts, t.states), "note")
}

// values returns the values of one row in the order of columns.
func (t *tableModel) values(row *rowModel) []any {
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

// create creates and fills all tables, and records the xmin of each row.
func (f *tableModels) create(t *testing.T, db *pgtest.Database) {
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

// content returns every row of every table as text, with the word written if it has
// changed since create and untouched otherwise.
func (f *tableModels) content(db *pgtest.Database) map[string][][]string {
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
