package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
)

// create returns SQL that replaces the tables of the previous case by those of this
// schema, without foreign keys.
func (s *schema) create() string {
	var sql strings.Builder
	quoted := make([]string, len(schemaNames()))
	for i, name := range schemaNames() {
		quoted[i] = quoteName(name)
	}
	fmt.Fprintf(&sql, "DROP SCHEMA IF EXISTS %s CASCADE;\n", strings.Join(quoted, ", "))
	for _, name := range quoted {
		fmt.Fprintf(&sql, "CREATE SCHEMA %s;\n", name)
	}
	for _, t := range s.tables {
		fmt.Fprintf(&sql, "CREATE TABLE %s (number integer NOT NULL, note integer NOT NULL, kind text NOT NULL",
			t.sql())
		for i, name := range t.key {
			fmt.Fprintf(&sql, ", %s %s NOT NULL", quoteName(name), t.kind.types[i])
		}
		for _, r := range t.references {
			for i, name := range r.columns {
				fmt.Fprintf(&sql, ", %s %s", quoteName(name), r.types[i])
			}
			if r.state != "" {
				fmt.Fprintf(&sql, ", %s smallint", quoteName(r.state))
			}
		}
		switch t.keying {
		case primary:
			fmt.Fprintf(&sql, ", PRIMARY KEY (%s)", quoteNames(t.key))
		case unique:
			fmt.Fprintf(&sql, ", PRIMARY KEY (number), UNIQUE (%s)", quoteNames(t.key))
		case keyless:
		}
		sql.WriteString(")")
		if len(t.partitions) > 0 {
			fmt.Fprintf(&sql, " PARTITION BY HASH (%s)", quoteName(t.key[0]))
		}
		sql.WriteString(";\n")
		for i := range t.partitions {
			fmt.Fprintf(&sql, "CREATE TABLE %s PARTITION OF %s FOR VALUES WITH (MODULUS %d, REMAINDER %d);\n",
				t.partition(i), t.sql(), len(t.partitions), i)
		}
		for _, r := range t.references {
			if r.indexed {
				fmt.Fprintf(&sql, "CREATE INDEX ON %s (%s);\n", t.sql(), quoteNames(r.columns))
			}
		}
	}
	return sql.String()
}

// definitions returns the schema's definitions, parsed from a file. The file has JSON,
// which is valid YAML.
func (s *schema) definitions(t require.TestingT) []definitions.Definition {
	type condition struct {
		Column string `json:"column"`
		Value  string `json:"value"`
	}
	type entry struct {
		Table        string             `json:"table"`
		Column       any                `json:"column"`
		ParentColumn any                `json:"parent_column,omitempty"`
		OnDelete     definitions.Action `json:"on_delete"`
		Conditions   []condition        `json:"conditions,omitempty"`
		TargetColumn string             `json:"target_column,omitempty"`
		TargetValue  string             `json:"target_value,omitempty"`
		DeleteLimit  int                `json:"delete_limit,omitempty"`
	}
	file := map[string][]entry{}
	for _, child := range s.tables {
		for _, r := range child.references {
			e := entry{
				Table: r.parent.sql(), Column: oneOrMore(r.columns), OnDelete: r.action,
				TargetColumn: r.state, DeleteLimit: r.deleteLimit,
			}
			if r.parent.keying == unique || len(r.columns) > 1 {
				e.ParentColumn = oneOrMore(r.parent.key)
			}
			if r.state != "" {
				e.TargetValue = stateChanged
			}
			if r.kind != "" {
				e.Conditions = []condition{{Column: "kind", Value: r.kind}}
			}
			file[child.sql()] = append(file[child.sql()], e)
		}
	}
	text, err := json.Marshal(file)
	require.NoError(t, err)
	defs, err := definitions.Parse(definitions.File{Name: "definitions.yml", Data: text})
	require.NoError(t, err)
	return defs
}

func oneOrMore(names []string) any {
	if len(names) == 1 {
		return names[0]
	}
	return names
}

// emulation creates a trigger function that runs its argument as a statement when a
// parent is deleted. It emulates actions that Postgres's foreign keys do not have.
const emulation = `CREATE FUNCTION public.emulate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE TG_ARGV[0] USING OLD;
	RETURN NULL;
END $$`

// constrain returns SQL that adds the native foreign keys. For references that Postgres
// does not have (with a condition, or setting another column) the SQL adds triggers.
func (s *schema) constrain() string {
	var sql strings.Builder
	for _, t := range s.tables {
		for i, r := range t.references {
			if r.isNative() {
				action := "SET NULL"
				if r.action == definitions.Delete {
					action = "CASCADE"
				}
				fmt.Fprintf(&sql, "ALTER TABLE %s ADD FOREIGN KEY (%s) REFERENCES %s (%s) ON DELETE %s;\n",
					t.sql(), quoteNames(r.columns), r.parent.sql(), quoteNames(r.parent.key), action)
				continue
			}
			fmt.Fprintf(&sql,
				"CREATE TRIGGER %s AFTER DELETE ON %s FOR EACH ROW EXECUTE FUNCTION public.emulate(%s);\n",
				quoteName(fmt.Sprintf("%s %s %d", t.schema, t.name, i)), r.parent.sql(), quoteText(t.emulate(r)))
		}
	}
	return sql.String()
}

// emulate returns the statement that changes the children of $1, the row of a deleted
// parent.
func (t *table) emulate(r *reference) string {
	terms := make([]string, len(r.columns))
	nulls := make([]string, len(r.columns))
	for i, column := range r.columns {
		terms[i] = fmt.Sprintf("%s = ($1).%s", quoteName(column), quoteName(r.parent.key[i]))
		nulls[i] = quoteName(column) + " = NULL"
	}
	where := strings.Join(terms, " AND ")
	if r.kind != "" {
		where += " AND kind = " + quoteText(r.kind)
	}
	switch r.action {
	case definitions.Nullify:
		return fmt.Sprintf("UPDATE %s SET %s WHERE %s", t.sql(), strings.Join(nulls, ", "), where)
	case definitions.UpdateColumn:
		return fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s", t.sql(), quoteName(r.state), stateChanged, where)
	case definitions.Delete:
	}
	return fmt.Sprintf("DELETE FROM %s WHERE %s", t.sql(), where)
}

// newRow is a row to insert.
type newRow struct {
	kind string
	// targets holds the row numbers of the parents. A negative number means NULL.
	targets []int
}

// insert returns a statement that inserts rows. The column note of each row gets the
// number of the row.
func (t *table) insert(rows ...newRow) string {
	columns := slices.Concat([]string{"number", "note", "kind"}, t.key)
	for _, r := range t.references {
		columns = append(columns, r.columns...)
		if r.state != "" {
			columns = append(columns, r.state)
		}
	}
	tuples := make([]string, len(rows))
	for i, row := range rows {
		values := slices.Concat([]string{fmt.Sprint(t.made), fmt.Sprint(t.made), quoteText(row.kind)}, t.value(t.made))
		for j, r := range t.references {
			values = append(values, r.value(row.targets[j])...)
			if r.state != "" {
				values = append(values, stateInitial)
			}
		}
		tuples[i] = "(" + strings.Join(values, ", ") + ")"
		// A key is not reused, even if the insert is rolled back.
		t.made++
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", t.sql(), quoteNames(columns), strings.Join(tuples, ", "))
}

// value returns the quoted key of row number n.
func (t *table) value(n int) []string {
	values := t.kind.value(n)
	for i, text := range values {
		values[i] = quoteText(text)
	}
	return values
}

// value returns the quoted values that refer to row number n of the parent. For a
// negative n, one column is NULL, so that the row refers to no parent.
func (r *reference) value(n int) []string {
	if n < 0 {
		values := r.parent.value(0)
		values[len(values)-1] = "NULL"
		return values
	}
	return r.parent.value(n)
}

// setParents returns a statement that sets all references of a row.
func (t *table) setParents(n int, targets []int) string {
	var sets []string
	for i, r := range t.references {
		for j, value := range r.value(targets[i]) {
			sets = append(sets, quoteName(r.columns[j])+" = "+value)
		}
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s", t.sql(), strings.Join(sets, ", "), t.matchKeys(n))
}

func (t *table) setNote(n, note int) string {
	return fmt.Sprintf("UPDATE %s SET note = %d WHERE %s", t.sql(), note, t.matchKeys(n))
}

// delete returns a statement that deletes rows by their keys, like an application.
func (t *table) delete(numbers ...int) string {
	return fmt.Sprintf("DELETE FROM %s WHERE %s", t.sql(), t.matchKeys(numbers...))
}

func (t *table) matchKeys(numbers ...int) string {
	keys := make([]string, len(numbers))
	for i, n := range numbers {
		keys[i] = "(" + strings.Join(t.value(n), ", ") + ")"
	}
	return fmt.Sprintf("(%s) IN (%s)", quoteNames(t.key), strings.Join(keys, ", "))
}

// orphans returns a PREPARE statement for a query that counts references to missing
// parents.
func (s *schema) orphans() string {
	counts := []string{"0"}
	for _, t := range s.tables {
		for _, r := range t.references {
			var refers, is []string
			for i, column := range r.columns {
				refers = append(refers, fmt.Sprintf("child.%s IS NOT NULL", quoteName(column)))
				is = append(is, fmt.Sprintf("parent.%s = child.%s", quoteName(r.parent.key[i]), quoteName(column)))
			}
			if r.kind != "" {
				refers = append(refers, "child.kind = "+quoteText(r.kind))
			}
			if r.state != "" {
				refers = append(refers, fmt.Sprintf("child.%s <> %s", quoteName(r.state), stateChanged))
			}
			counts = append(counts,
				fmt.Sprintf("(SELECT count(*) FROM %s AS child WHERE %s AND NOT EXISTS (SELECT FROM %s AS parent WHERE %s))",
					t.sql(), strings.Join(refers, " AND "), r.parent.sql(), strings.Join(is, " AND ")))
		}
	}
	return "PREPARE orphans AS SELECT " + strings.Join(counts, " + ")
}

// content returns a PREPARE statement for a query of all rows: the table's number, the
// row's number, whether a parent's deletion has changed the row's state, and the whole
// row.
func (s *schema) content() string {
	queries := make([]string, len(s.tables))
	for i, t := range s.tables {
		marked := []string{"false"}
		for _, r := range t.references {
			if r.state != "" {
				marked = append(marked, fmt.Sprintf("%s = %s", quoteName(r.state), stateChanged))
			}
		}
		queries[i] = fmt.Sprintf("SELECT %d, entry.number, %s, entry::text FROM %s AS entry", i,
			strings.Join(marked, " OR "), t.sql())
	}
	return "PREPARE content AS " + strings.Join(queries, " UNION ALL ") + " ORDER BY 1, 2"
}

func (t *table) sql() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

func (t *table) partition(i int) string { return pgx.Identifier{t.schema, t.partitions[i]}.Sanitize() }

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quoteName(name)
	}
	return strings.Join(quoted, ", ")
}
