package pgcatalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Relation describes one table, view or foreign table.
type Relation struct {
	Table
	// Printed is the qualified name, quoted only if necessary.
	Printed string
	// Kind is pg_class.relkind.
	Kind string
	// Root is the topmost partitioned table of a partition, or else the relation itself.
	Root    uint32
	Columns map[string]Column
	// Leaves holds the tables that statements use: the table itself, or its leaf
	// partitions. A row pointer (ctid) is unique only within a leaf.
	Leaves []Table
	// Foreign is a partition that is a foreign table, or nil.
	Foreign *Table
	// Indexes holds the indexes of the table and of its leaves, by the table's OID,
	// oldest first.
	Indexes map[uint32][]Index
	// Rules holds the names of the rules for DELETE on the leaves.
	Rules []string
}

// Column is one column of a relation.
type Column struct {
	Name string
	// Type is the declared type with its length or precision. Base is the qualified and
	// quoted type. If the declared type is a domain, Base is the domain's base type.
	Type, Base string
	// Domain reports that the declared type is a domain. Polymorphic is the pseudo-type
	// of operators that compare values of types like Base, such as anyenum. Polymorphic
	// is empty for other types.
	Domain      bool
	Polymorphic string
	Collation   Collation
	NotNull     bool
	// Generated reports that the column cannot be set. Partitioning reports that the
	// column is part of a partition key, so that a change may move the row to another
	// partition. Partitioning includes the keys of partitions that are partitioned
	// themselves.
	Generated, Partitioning bool
	HasDefault              bool
}

// IsTable reports whether the relation is an ordinary or partitioned table.
func (r *Relation) IsTable() bool { return r.Kind == "r" || r.Kind == "p" }

// IsPartition reports whether the table is a partition.
func (r *Relation) IsPartition() bool { return r.Root != r.OID }

// Integer reports whether a type in the form of Base is smallint, integer or bigint.
func Integer(base string) bool {
	return slices.Contains([]string{"pg_catalog.int2", "pg_catalog.int4", "pg_catalog.int8"}, base)
}

// PrimaryKey returns the columns of the primary key in order, or nil.
func (r *Relation) PrimaryKey() []string {
	for _, i := range r.Indexes[r.OID] {
		if i.Primary {
			return i.Columns
		}
	}
	return nil
}

// EventProblem returns the reason why a statement cannot delete rows and write an event
// with their keys and these columns, and the fix. The reason is "" if a statement can.
func (r *Relation) EventProblem(table string, columns []string) (why, fix string) {
	switch {
	case len(r.PrimaryKey()) == 0:
		return "table " + table + " has no primary key to identify its rows", "add a primary key"
	case len(r.Rules) > 0:
		why = fmt.Sprintf("table %s has the rule %s, and Postgres does not support DELETE ... RETURNING with such a rule",
			table, strings.Join(r.Rules, ", "))
		return why, "replace the rule with a trigger"
	}
	for _, column := range columns {
		if _, found := r.Columns[column]; !found {
			return "table " + table + " has no column " + column, "name one of its columns"
		}
	}
	return "", ""
}

// Shown returns an SQL expression for a text that identifies a row in messages: its
// primary key as "id 17, at 3", or its ctid.
func (r *Relation) Shown(alias string) string { return Shown(alias, r.PrimaryKey()) }

// Shown returns the expression of [Relation.Shown] for a table with the given primary
// key.
func Shown(alias string, key []string) string {
	if len(key) == 0 {
		return "'ctid ' OPERATOR(pg_catalog.||) " + alias + ".ctid::pg_catalog.text"
	}
	terms := make([]string, len(key))
	for i, column := range key {
		terms[i] = fmt.Sprintf("%s OPERATOR(pg_catalog.||) %s.%s::pg_catalog.text", Literal(column+" "), alias,
			Quote(column))
	}
	return "pg_catalog.concat_ws(', ', " + strings.Join(terms, ", ") + ")"
}

// Unique reports whether the column is unique by itself.
func (r *Relation) Unique(column string) bool {
	return slices.ContainsFunc(r.Indexes[r.OID], func(i Index) bool {
		return i.Unique && i.Complete() &&
			slices.Equal(i.Columns, []string{column})
	})
}

// Leads reports whether a complete index of the table or leaf with that OID begins with
// the column.
func (r *Relation) Leads(table uint32, column string) bool {
	return slices.ContainsFunc(r.Indexes[table], func(i Index) bool {
		return i.Complete() && len(i.Columns) > 0 &&
			i.Columns[0] == column
	})
}

// Unindexed returns the statement that creates a missing index on a column, or "" if the
// table or each of its leaves has an index that begins with it.
func (r *Relation) Unindexed(column string) string {
	missing := func(leaf Table) bool { return !r.Leads(leaf.OID, column) }
	switch {
	case r.Leads(r.OID, column) || !slices.ContainsFunc(r.Leaves, missing):
		return ""
	case r.Kind == "p":
		// Postgres refuses CREATE INDEX CONCURRENTLY on a partitioned table, so each leaf
		// gets an index.
		return fmt.Sprintf("CREATE INDEX CONCURRENTLY on each partition, then CREATE INDEX ON %s (%s)", r.SQL(),
			Quote(column))
	}
	return r.CreateIndex(r.Table, column)
}

// CreateIndex returns the statement that creates an index on columns of the table or of
// one of its leaves. If such an index exists but is invalid, the statement rebuilds it.
// CREATE INDEX would add a second index, and the invalid index would slow down each
// write.
func (r *Relation) CreateIndex(of Table, columns ...string) string {
	again := r.Reindex(of.OID, func(i Index) bool {
		return i.Method == "btree" && i.Predicate == "" && LeadsTo(i.Columns, columns, nil, false)
	})
	return cmp.Or(again, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", of.SQL(), QuoteAll(columns)))
}

// Reindex returns the statement that rebuilds the first invalid index of a table that
// usable accepts, or "" if there is no such index.
func (r *Relation) Reindex(table uint32, usable func(Index) bool) string {
	for _, i := range r.Indexes[table] {
		if !i.Valid && usable(i) {
			return "REINDEX INDEX CONCURRENTLY " + i.Printed
		}
	}
	return ""
}

// ColumnNames returns the sorted names of the relation's columns.
func (r *Relation) ColumnNames() []string { return slices.Sorted(maps.Keys(r.Columns)) }

// Read reads relations with a fixed number of statements. It leaves out relations that
// have been dropped.
func Read(ctx context.Context, db dbsqlc.DBTX, oids []uint32) (map[uint32]*Relation, error) {
	relations := map[uint32]*Relation{}
	rows, _ := db.Query(ctx, text("relations"), oids)
	var found Relation
	var roots []uint32
	_, err := pgx.ForEachRow(rows, []any{
		&found.OID, &found.Schema, &found.Name, &found.Printed, &found.Kind,
		&found.Root, &found.Rules,
	}, func() error {
		r := found
		r.Rules = slices.Clone(found.Rules)
		r.Columns, r.Indexes = map[string]Column{}, map[uint32][]Index{}
		relations[r.OID] = &r
		switch r.Kind {
		case "r":
			r.Leaves = []Table{r.Table}
		case "p":
			roots = append(roots, r.OID)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	if err := readColumns(ctx, db, relations, oids); err != nil {
		return nil, err
	}
	if err := readLeaves(ctx, db, relations, roots); err != nil {
		return nil, err
	}
	return relations, readIndexes(ctx, db, relations)
}

func readColumns(ctx context.Context, db dbsqlc.DBTX, relations map[uint32]*Relation, oids []uint32) error {
	rows, _ := db.Query(ctx, text("columns"), oids)
	var oid uint32
	var c Column
	target := []any{
		&oid, &c.Name, &c.Type, &c.Base, &c.NotNull, &c.Generated, &c.Partitioning, &c.HasDefault,
		&c.Domain, &c.Polymorphic, &c.Collation.Name, &c.Collation.Loose,
	}
	_, err := pgx.ForEachRow(rows, target, func() error {
		if r := relations[oid]; r != nil {
			r.Columns[c.Name] = c
		}
		return nil
	})
	return problem.Doing(err, "read columns")
}

func readLeaves(ctx context.Context, db dbsqlc.DBTX, relations map[uint32]*Relation, roots []uint32) error {
	if len(roots) == 0 {
		return nil
	}
	rows, _ := db.Query(ctx, text("leaves"), roots)
	var root uint32
	var leaf Table
	var kind string
	var rules []string
	_, err := pgx.ForEachRow(rows, []any{&root, &leaf.OID, &leaf.Schema, &leaf.Name, &kind, &rules}, func() error {
		switch r := relations[root]; kind {
		case "r":
			r.Leaves, r.Rules = append(r.Leaves, leaf), append(r.Rules, rules...)
		case "f":
			foreign := leaf
			r.Foreign = &foreign
		}
		return nil
	})
	return problem.Doing(err, "read partitions")
}
