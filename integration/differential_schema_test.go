package integration

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"sexton/internal/definitions"
)

// schemaNames returns the schemas of the tables. The first name needs quotes, like most
// names in these tests.
func schemaNames() []string { return []string{`App "Data"`, "other"} }

// keyKind describes the types of a key and the types that columns referring to it may
// have, column by column.
type keyKind struct {
	types   []string
	columns [][]string
	// value returns the key of row number n as texts. One column alone does not identify
	// a row.
	value func(n int) []string
}

func keyKinds() []keyKind {
	plain := func(n int) []string { return []string{fmt.Sprint(n)} }
	integers := [][]string{{"bigint", "integer", "smallint"}}
	return []keyKind{
		{types: []string{"bigint"}, columns: integers, value: plain},
		{types: []string{"integer"}, columns: integers, value: plain},
		{types: []string{"smallint"}, columns: integers, value: plain},
		{
			types: []string{"text"}, columns: [][]string{{"text", "varchar(40)"}},
			value: func(n int) []string { return []string{fmt.Sprintf(`Key '%d" \ é, {}`, n)} },
		},
		{
			types: []string{"uuid"}, columns: [][]string{{"uuid"}},
			value: func(n int) []string { return []string{fmt.Sprintf("00000000-0000-4000-8000-%012d", n)} },
		},
		{
			types: []string{"integer", "integer"}, columns: [][]string{{"bigint", "integer"}, {"integer", "smallint"}},
			value: func(n int) []string { return []string{fmt.Sprint(n % 3), fmt.Sprint(n / 3)} },
		},
		{
			types: []string{"bigint", "text"}, columns: [][]string{{"bigint", "integer"}, {"text", "varchar(40)"}},
			value: func(n int) []string { return []string{fmt.Sprint(n / 2), fmt.Sprintf(`{"%d", NULL}`, n%2)} },
		},
		{
			types: []string{"uuid", "text", "smallint"}, columns: [][]string{{"uuid"}, {"text"}, {"smallint"}},
			value: func(n int) []string {
				return []string{
					fmt.Sprintf("00000000-0000-4000-8000-%012d", n%2), []string{"", ",", `\`}[n%3],
					fmt.Sprint(n / 6),
				}
			},
		},
	}
}

// reference is one foreign key. In one database it is a native foreign key or a trigger,
// in the other one a definition.
type reference struct {
	columns     []string
	types       []string
	parent      *table
	action      definitions.Action
	deleteLimit int
	indexed     bool
	// kind restricts the reference to rows of this kind. If it is empty, the reference
	// applies to all rows.
	kind string
	// state is the column that update_column_to sets to stateChanged.
	state string
}

// stateInitial and stateChanged are the values of state columns before and after the
// deletion of the parent.
const (
	stateInitial = "7"
	stateChanged = "-1"
)

// rowKinds returns the values of the column that conditions compare. No statement changes
// the column.
func rowKinds() []string { return []string{"Kind A", "b"} }

// keying is the kind of constraint on a table's key.
type keying string

const (
	primary keying = "primary key"
	// unique is a unique constraint in addition to the primary key. Definitions must name
	// its columns.
	unique keying = "unique key"
	// keyless tables have no key, so no reference can point to them.
	keyless keying = "no key"
)

type table struct {
	schema, name string
	kind         keyKind
	key          []string
	keying       keying
	// partitions holds the names of the partitions. It is empty for an ordinary table.
	partitions []string
	references []*reference
	// made counts the rows that were ever inserted, because keys are not reused.
	made int
}

type schema struct{ tables []*table }

// shape restricts the schemas that are drawn, so that each kind of schema occurs often
// enough.
type shape struct {
	// share is the number of schemas drawn for each schema of the most expensive shape.
	share      int
	tables     []int
	keys       []keyKind
	partitions bool
}

// drawSchema draws tables with random references: chains, cycles, references to the same
// table, and several references to one parent.
func drawSchema(rt *rapid.T, s shape) *schema {
	names := []string{"Mixed Case", "plain", `quo"ted`, "select", "näh", "dot.ted"}
	drawn := &schema{}
	for i := range rapid.SampledFrom(s.tables).Draw(rt, "tables") {
		t := &table{name: names[i%len(names)], kind: rapid.SampledFrom(s.keys).Draw(rt, "key"), keying: primary}
		t.schema = rapid.SampledFrom(schemaNames()).Draw(rt, "schema")
		if i >= len(names) {
			// Names repeat after six tables. The earlier table with the same name is in
			// one schema, so this table is put in the other schema.
			other := slices.Index(schemaNames(), drawn.tables[i-len(names)].schema)
			t.schema = schemaNames()[1-other]
		}
		t.key = keyNames(rapid.SampledFrom([]string{"id", `Key "1"`}).Draw(rt, "key column"), len(t.kind.types))
		if s.partitions && rapid.IntRange(0, 2).Draw(rt, "partitioned") == 2 {
			for n := range 2 {
				t.partitions = append(t.partitions, fmt.Sprintf("%s %d", t.name, n))
			}
		}
		drawn.tables = append(drawn.tables, t)
	}
	for i, t := range drawn.tables {
		// The second table always has a reference, so that every case has work.
		for j := range rapid.IntRange(min(i, 1), 3).Draw(rt, "references") {
			t.references = append(t.references, drawReference(rt, drawn, j))
		}
	}
	for _, t := range drawn.tables {
		switch {
		case !drawn.isParent(t):
			t.keying = rapid.SampledFrom([]keying{primary, keyless}).Draw(rt, "keying")
		case len(t.partitions) == 0:
			t.keying = rapid.SampledFrom([]keying{primary, primary, unique}).Draw(rt, "keying")
		}
	}
	return drawn
}

func keyNames(first string, columns int) []string {
	names := []string{first}
	for i := 1; i < columns; i++ {
		names = append(names, fmt.Sprintf("%s Part %d", first, i))
	}
	return names
}

func drawReference(rt *rapid.T, s *schema, number int) *reference {
	parent := rapid.SampledFrom(s.tables).Draw(rt, "parent")
	r := &reference{
		parent: parent, columns: keyNames(fmt.Sprintf("Ref %d", number), len(parent.kind.types)),
		action: rapid.SampledFrom([]definitions.Action{
			definitions.Delete, definitions.Nullify, definitions.Delete, definitions.UpdateColumn,
		}).Draw(rt, "action"),
		indexed: rapid.Bool().Draw(rt, "indexed"),
	}
	for _, types := range parent.kind.columns {
		r.types = append(r.types, rapid.SampledFrom(types).Draw(rt, "column type"))
	}
	if rapid.IntRange(0, 3).Draw(rt, "conditional") == 3 {
		r.kind = rapid.SampledFrom(rowKinds()).Draw(rt, "condition")
	}
	switch r.action {
	case definitions.Delete:
		r.deleteLimit = rapid.IntRange(0, 2).Draw(rt, "delete limit")
	case definitions.UpdateColumn:
		r.state = fmt.Sprintf("State %d", number)
	case definitions.Nullify:
	}
	return r
}

func (s *schema) isParent(t *table) bool {
	return slices.ContainsFunc(s.tables, func(child *table) bool {
		return slices.ContainsFunc(child.references, func(r *reference) bool { return r.parent == t })
	})
}

// isNative reports whether Postgres has an equivalent foreign key.
func (r *reference) isNative() bool { return r.kind == "" && r.action != definitions.UpdateColumn }

// ancestry returns the length of the longest chain of references from a table, and
// whether the table refers to itself directly or through other tables.
func (s *schema) ancestry(start *table) (steps int, cyclic bool) {
	reached := map[*table]bool{}
	for level := []*table{start}; ; steps++ {
		var next []*table
		for _, t := range level {
			for _, r := range t.references {
				if !reached[r.parent] {
					reached[r.parent] = true
					next = append(next, r.parent)
				}
			}
		}
		if len(next) == 0 {
			return steps, reached[start]
		}
		level = next
	}
}

func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func quoteAll(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quoteText(text)
	}
	return strings.Join(quoted, ", ")
}
