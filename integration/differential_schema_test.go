package integration

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"sexton/internal/definitions"
)

// schemaNames are those that the tables of a case are spread over. The first needs
// quotes, as most names of these tests do.
func schemaNames() []string { return []string{`App "Data"`, "other"} }

// keyKind is a family of types that a key and the columns that refer to it may have,
// column by column.
type keyKind struct {
	types   []string
	columns [][]string
	// value makes the key of row number n, as texts. A column alone does not identify a
	// row.
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

// reference is one foreign key: a native one or its like in one database, a definition in
// the other.
type reference struct {
	columns     []string
	types       []string
	parent      *table
	action      definitions.Action
	deleteLimit int
	indexed     bool
	// kind restricts the reference to rows of that kind; empty means all.
	kind string
	// state is the column that update_column_to sets to gone.
	state string
}

// What state columns hold.
const (
	intact = "7"
	gone   = "-1"
)

// rowKinds are the values of the column for conditions, which nothing changes.
func rowKinds() []string { return []string{"Kind A", "b"} }

// keying is what makes a table's key one.
type keying string

const (
	primary keying = "primary key"
	// unique is a key beside the primary key, which definitions have to name.
	unique keying = "unique key"
	// keyless tables have nothing that could be referred to.
	keyless keying = "no key"
)

type table struct {
	schema, name string
	kind         keyKind
	key          []string
	keying       keying
	// partitions are the names of the leaves; none for a plain table.
	partitions []string
	references []*reference
	// made counts the rows ever made: a key is never used twice.
	made int
}

type schema struct{ tables []*table }

// shape restricts what is drawn, so that each kind of schema comes often enough.
type shape struct {
	// share says how many times as many schemas are drawn as of the most expensive shape.
	share      int
	tables     []int
	keys       []keyKind
	partitions bool
}

// drawSchema draws tables that refer to each other at will: chains, cycles, themselves,
// several times to one parent.
func drawSchema(rt *rapid.T, s shape) *schema {
	names := []string{"Mixed Case", "plain", `quo"ted`, "select", "näh", "dot.ted"}
	drawn := &schema{}
	for i := range rapid.SampledFrom(s.tables).Draw(rt, "tables") {
		t := &table{name: names[i%len(names)], kind: rapid.SampledFrom(s.keys).Draw(rt, "key"), keying: primary}
		t.schema = rapid.SampledFrom(schemaNames()).Draw(rt, "schema")
		if i >= len(names) {
			// Its namesake is in the other schema.
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
		// The second table always refers to something, so that no case is idle.
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

// native reports whether Postgres has such a foreign key itself.
func (r *reference) native() bool { return r.kind == "" && r.action != definitions.UpdateColumn }

// ancestry is how many steps a table's farthest parent is away, and whether the table is,
// through others or at once, its own parent.
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
