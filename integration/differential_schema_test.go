package integration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"sexton/internal/definitions"
)

// schemaName needs quotes, as most names of these tests do.
const schemaName = `App "Data"`

// keyKind is a family of types that a primary key and the columns that refer to it may have.
type keyKind struct {
	key     string
	columns []string
	value   func(n int) string
}

func keyKinds() []keyKind {
	plain := func(n int) string { return fmt.Sprint(n) }
	integers := []string{"smallint", "integer", "bigint"}
	return []keyKind{
		{key: "bigint", columns: integers, value: plain},
		{key: "integer", columns: integers, value: plain},
		{key: "text", columns: []string{"text", "varchar(40)"}, value: func(n int) string { return fmt.Sprintf(`Key '%d" \ é`, n) }},
		{key: "uuid", columns: []string{"uuid"}, value: func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }},
	}
}

// reference is one foreign key: a native one in one database, a definition in the other.
type reference struct {
	column      string
	columnType  string
	parent      *table
	action      definitions.Action
	deleteLimit int
	indexed     bool
}

type table struct {
	name string
	kind keyKind
	// partitions is 0 for a plain table.
	partitions int
	// keyless is a table without primary key, which nothing can refer to.
	keyless    bool
	references []reference
	// made counts the rows ever made: a key is never used twice.
	made int
}

type schema struct{ tables []*table }

// shape restricts what is drawn, so that each kind of schema comes often enough.
type shape struct {
	keys       []keyKind
	partitions bool
}

// drawSchema draws 2 to 6 tables that refer to each other at will: chains, cycles, themselves, several times
// to one parent.
func drawSchema(rt *rapid.T, s shape) *schema {
	names := []string{"Mixed Case", "plain", `quo"ted`, "select", "näh", "dot.ted"}
	drawn := &schema{}
	for i := range rapid.IntRange(2, len(names)).Draw(rt, "tables") {
		t := &table{name: names[i], kind: rapid.SampledFrom(s.keys).Draw(rt, "key")}
		if s.partitions && rapid.IntRange(0, 2).Draw(rt, "partitioned") == 0 {
			t.partitions = 2
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
		t.keyless = t.partitions == 0 && !drawn.isParent(t) && rapid.Bool().Draw(rt, "keyless")
	}
	return drawn
}

func drawReference(rt *rapid.T, s *schema, number int) reference {
	parent := rapid.SampledFrom(s.tables).Draw(rt, "parent")
	r := reference{
		column: fmt.Sprintf("Ref %d", number), parent: parent,
		columnType: rapid.SampledFrom(parent.kind.columns).Draw(rt, "column type"),
		action:     definitions.Nullify,
		indexed:    rapid.Bool().Draw(rt, "indexed"),
	}
	if rapid.IntRange(0, 2).Draw(rt, "delete") > 0 {
		r.action = definitions.Delete
		r.deleteLimit = rapid.IntRange(0, 2).Draw(rt, "delete limit")
	}
	return r
}

func (s *schema) isParent(t *table) bool {
	return slices.ContainsFunc(s.tables, func(child *table) bool {
		return slices.ContainsFunc(child.references, func(r reference) bool { return r.parent == t })
	})
}

func (s *schema) definitions() []definitions.Definition {
	var defs []definitions.Definition
	for _, t := range s.tables {
		for i, r := range t.references {
			defs = append(defs, definitions.Definition{
				Key:   fmt.Sprintf("%s[%d]", t.name, i),
				Child: definitions.Name{Schema: schemaName, Table: t.name}, Column: r.column,
				Parent:   definitions.Name{Schema: schemaName, Table: r.parent.name},
				OnDelete: r.action, DeleteLimit: r.deleteLimit,
			})
		}
	}
	return defs
}

// create is the script that makes the tables, without foreign keys.
func (s *schema) create() string {
	var sql strings.Builder
	fmt.Fprintf(&sql, "DROP SCHEMA IF EXISTS %[1]s CASCADE; CREATE SCHEMA %[1]s;\n", quoteName(schemaName))
	for _, t := range s.tables {
		fmt.Fprintf(&sql, "CREATE TABLE %s (id %s NOT NULL, note integer NOT NULL", t.sql(), t.kind.key)
		for _, r := range t.references {
			fmt.Fprintf(&sql, ", %s %s", quoteName(r.column), r.columnType)
		}
		if !t.keyless {
			sql.WriteString(", PRIMARY KEY (id)")
		}
		sql.WriteString(")")
		if t.partitions > 0 {
			sql.WriteString(" PARTITION BY HASH (id)")
		}
		sql.WriteString(";\n")
		for i := range t.partitions {
			fmt.Fprintf(&sql, "CREATE TABLE %s PARTITION OF %s FOR VALUES WITH (MODULUS %d, REMAINDER %d);\n", t.partition(i), t.sql(), t.partitions, i)
		}
		for _, r := range t.references {
			if r.indexed {
				fmt.Fprintf(&sql, "CREATE INDEX ON %s (%s);\n", t.sql(), quoteName(r.column))
			}
		}
	}
	return sql.String()
}

// constrain is the script with the native foreign keys.
func (s *schema) constrain() string {
	var sql strings.Builder
	for _, t := range s.tables {
		for _, r := range t.references {
			action := "SET NULL"
			if r.action == definitions.Delete {
				action = "CASCADE"
			}
			fmt.Fprintf(&sql, "ALTER TABLE %s ADD FOREIGN KEY (%s) REFERENCES %s (id) ON DELETE %s;\n", t.sql(), quoteName(r.column), r.parent.sql(), action)
		}
	}
	return sql.String()
}

// drawRows is a script that fills the tables. References may point anywhere, as the native foreign keys
// come after it.
func (s *schema) drawRows(rt *rapid.T) string {
	for _, t := range s.tables {
		t.made = rapid.IntRange(0, 9).Draw(rt, "rows")
	}
	var sql strings.Builder
	for _, t := range s.tables {
		for n := range t.made {
			targets := make([]*string, len(t.references))
			for i, r := range t.references {
				// Below zero is NULL.
				if at := rapid.IntRange(-1, r.parent.made-1).Draw(rt, "target"); at >= 0 {
					key := r.parent.kind.value(at)
					targets[i] = &key
				}
			}
			sql.WriteString(t.insert(n, targets) + ";\n")
		}
	}
	return sql.String()
}

// insert makes row number n, whose note is n too.
func (t *table) insert(n int, targets []*string) string {
	columns, values := []string{"id", "note"}, []string{quoteText(t.kind.value(n)), fmt.Sprint(n)}
	for i, r := range t.references {
		columns, values = append(columns, quoteName(r.column)), append(values, quoteNullable(targets[i]))
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", t.sql(), strings.Join(columns, ", "), strings.Join(values, ", "))
}

func (t *table) sql() string { return pgx.Identifier{schemaName, t.name}.Sanitize() }

func (t *table) partition(i int) string {
	return pgx.Identifier{schemaName, fmt.Sprintf("%s %d", t.name, i)}.Sanitize()
}

// content is a query for all rows: number of the table, key, whole row.
func (s *schema) content() string {
	queries := make([]string, len(s.tables))
	for i, t := range s.tables {
		queries[i] = fmt.Sprintf("SELECT %d, entry.id::text, entry::text FROM %s AS entry", i, t.sql())
	}
	return strings.Join(queries, " UNION ALL ") + " ORDER BY 1, 2"
}

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func quoteNullable(text *string) string {
	if text == nil {
		return "NULL"
	}
	return quoteText(*text)
}

func quoteAll(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quoteText(text)
	}
	return strings.Join(quoted, ", ")
}
