package dbtest

import (
	"fmt"
	"hash/crc32"
	"strings"

	"sexton/internal/render"
)

// Family returns SQL that creates the table parents with the ids 1 to n, and the given
// tables of children:
//
//	dbtest.Family(10, dbtest.Children{Each: 10}, dbtest.Children{Table: "notes", Columns: "kind int DEFAULT 3", Bare: true})
func Family(n int, children ...Children) string {
	return Parents("parents", n) + strings.Join(render.Each(children, Children.SQL), "")
}

// Parents returns SQL that creates a table with the column id and the rows 1 to n.
func Parents(table string, n int) string {
	return fmt.Sprintf("CREATE TABLE %[1]s (id bigint PRIMARY KEY); INSERT INTO %[1]s SELECT generate_series(1, %d);\n",
		table, n)
}

// Children describes a table whose rows refer to parents without a foreign key.
type Children struct {
	// Table is the name of the table; the default is children.
	Table string
	// Of is the table of the parents; the default is parents. The column that refers to
	// the parents has the name of that table without its last letter, and then _id:
	// parent_id.
	Of string
	// Each is the number of rows of each parent. The rows of parent p have the ids Each*p
	// to Each*p+Each-1.
	Each int
	// Columns are further columns, written as in CREATE TABLE.
	Columns string
	// Partitions is the number of partitions by hash of the id. If it is 0, the table has
	// no partitions.
	Partitions int
	// Bare leaves out the index on the column that refers to the parents.
	Bare bool
}

// SQL returns SQL that creates the table, its partitions, its index and its rows.
func (c Children) SQL() string {
	table, of, columns, options := c.Table, c.Of, "", ""
	if table == "" {
		table = "children"
	}
	if of == "" {
		of = "parents"
	}
	if c.Columns != "" {
		columns = ", " + c.Columns
	}
	if c.Partitions > 0 {
		options = " PARTITION BY HASH (id)"
	}
	column := of[:len(of)-1] + "_id"
	var sql strings.Builder
	fmt.Fprintf(&sql, "CREATE TABLE %s (id bigint PRIMARY KEY, %s bigint%s)%s;\n", table, column, columns, options)
	for i := range c.Partitions {
		fmt.Fprintf(&sql,
			"CREATE TABLE %[1]s_%[2]d PARTITION OF %[1]s FOR VALUES WITH (MODULUS %[3]d, REMAINDER %[2]d);\n", table, i,
			c.Partitions)
	}
	if !c.Bare {
		fmt.Fprintf(&sql, "CREATE INDEX ON %s (%s);\n", table, column)
	}
	if c.Each > 0 {
		fmt.Fprintf(&sql,
			"INSERT INTO %s (id, %s) SELECT %d * parent.id + n, parent.id FROM %s AS parent, generate_series(0, %d) AS n ORDER BY 1;\n",
			table, column, c.Each, of, c.Each-1)
	}
	return sql.String()
}

// Definitions returns YAML definitions of tables that refer to parents by parent_id.
// onDelete may have further settings after the action: "async_delete, delete_limit: 3".
func Definitions(onDelete string, children ...string) string {
	return strings.Join(render.Each(children, func(table string) string {
		return table + ": [{table: parents, column: parent_id, on_delete: " + onDelete + "}]\n"
	}), "")
}

// OnStatement returns SQL for a trigger that runs plpgsql after each statement of an
// event, such as DELETE. The transition table gone holds the old rows.
func OnStatement(event, table, plpgsql string) string {
	return hook(plpgsql+" RETURN NULL;", "AFTER "+event+" ON "+table+
		" REFERENCING OLD TABLE AS gone FOR EACH STATEMENT")
}

// OnRow returns SQL for a trigger that runs plpgsql before each row change that meets the
// condition. In plpgsql, RETURN NULL skips the row.
func OnRow(event, table, condition, plpgsql string) string {
	return hook(plpgsql+" RETURN coalesce(new, old);", "BEFORE "+event+" ON "+table+" FOR EACH ROW WHEN ("+condition+
		")")
}

// hook returns SQL for a trigger and its function, whose name is a checksum of their
// text.
func hook(body, on string) string {
	name := fmt.Sprintf("hook_%x", crc32.ChecksumIEEE([]byte(body+on)))
	return fmt.Sprintf("CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %[2]s END $$;\n"+
		"CREATE TRIGGER %[1]s %[3]s EXECUTE FUNCTION %[1]s();\n", name, body, on)
}
