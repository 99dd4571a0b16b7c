package pgcatalog

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Index is one index of a table.
type Index struct {
	// Name is its own name, Printed the qualified one, quoted only where it needs to be.
	Name, Printed string
	// Method is how it finds rows: btree, the only one with an order, or another.
	Method string
	// Columns are the key columns in order; "" is an expression.
	Columns []string
	// Families are the operator families and Inputs the types by which the index compares each of Columns, Collations its own.
	Families, Inputs []string
	Collations       []Collation
	Primary, Unique  bool
	// Deferrable reports that two rows may share a key until a transaction ends.
	Deferrable bool
	// Valid is false for one that is being built or could not be built.
	Valid bool
	// Predicate is that of a partial index, where it says of columns that they are not NULL and nothing else; any other is "?".
	Predicate string
}

// Complete reports whether the index has all rows of its table.
func (i Index) Complete() bool { return i.Valid && i.Predicate == "" }

// Order returns the places of columns in the order of the index where it begins with all of them, and else nil.
func (i Index) Order(columns []string) []int {
	if len(i.Columns) < len(columns) {
		return nil
	}
	order := make([]int, len(columns))
	for at := range order {
		if order[at] = slices.Index(columns, i.Columns[at]); order[at] < 0 {
			return nil
		}
	}
	return order
}

const indexesSQL = `
SELECT index.indrelid, index.indisprimary, index.indisunique, NOT index.indimmediate, index.indisvalid, ` + predicateSQL + `,
    class.relname, pg_catalog.format('%s.%I', class.relnamespace::pg_catalog.regnamespace, class.relname), method.amname,
    ARRAY(
        SELECT coalesce(attribute.attname, '')::pg_catalog.text
        FROM pg_catalog.unnest(index.indkey::smallint[]) WITH ORDINALITY AS key (number, position)
        LEFT JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = key.number
        WHERE key.position <= index.indnkeyatts
        ORDER BY key.position
    ),
    order_by.families, order_by.inputs, order_by.collations, order_by.loose
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_am AS method ON method.oid = class.relam
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(pg_catalog.format('%s.%I', family.opfnamespace::pg_catalog.regnamespace, family.opfname) ORDER BY key.position) AS families,
        pg_catalog.array_agg(pg_catalog.format('%s.%I', type.typnamespace::pg_catalog.regnamespace, type.typname) ORDER BY key.position) AS inputs,
        pg_catalog.array_agg(CASE WHEN rule.oid IS NULL THEN '' ELSE pg_catalog.format('%s.%I', rule.collnamespace::pg_catalog.regnamespace, rule.collname) END
            ORDER BY key.position) AS collations,
        pg_catalog.array_agg(rule.oid IS NOT NULL AND NOT rule.collisdeterministic ORDER BY key.position) AS loose
    FROM ROWS FROM (pg_catalog.unnest(index.indclass::pg_catalog.oid[]), pg_catalog.unnest(index.indcollation::pg_catalog.oid[]))
        WITH ORDINALITY AS key (class, rule, position)
    JOIN pg_catalog.pg_opclass AS class ON class.oid OPERATOR(pg_catalog.=) key.class
    JOIN pg_catalog.pg_type AS type ON type.oid OPERATOR(pg_catalog.=) class.opcintype
    JOIN pg_catalog.pg_opfamily AS family ON family.oid OPERATOR(pg_catalog.=) class.opcfamily
    LEFT JOIN pg_catalog.pg_collation AS rule ON rule.oid OPERATOR(pg_catalog.=) key.rule
) AS order_by
WHERE index.indrelid = ANY ($1)
ORDER BY index.indexrelid`

// predicateSQL is Index.Predicate of a row of pg_index. pg_get_expr would show any predicate, but it locks the table, and waits while another
// session holds it.
const predicateSQL = `CASE WHEN index.indpred IS NULL THEN ''
    WHEN pg_catalog.regexp_replace(index.indpred::pg_catalog.text, ` + notNullNode + `, '', 'g')
        ~ '^({BOOLEXPR :boolop and :args \( *\) :location -?[0-9]+})?$' THEN (
        SELECT pg_catalog.string_agg(pg_catalog.format('(%I IS NOT NULL)', attribute.attname), ' AND ' ORDER BY attribute.attnum)
        FROM pg_catalog.regexp_matches(index.indpred::pg_catalog.text, ` + notNullNode + `, 'g') AS node (number)
        JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = node.number[1]::smallint
    ) ELSE '?' END`

// notNullNode is how the server keeps the condition that a column is not NULL.
const notNullNode = `'{NULLTEST :arg {VAR :varno 1 :varattno ([0-9]+) [^{}]*} :nulltesttype 1 [^{}]*}'`

// readIndexes reads those of relations and of their leaves.
func readIndexes(ctx context.Context, db dbsqlc.DBTX, relations map[uint32]*Relation) error {
	var tables []uint32
	owners := map[uint32][]*Relation{}
	own := func(table uint32, r *Relation) {
		tables = append(tables, table)
		owners[table] = append(owners[table], r)
	}
	for oid, r := range relations {
		own(oid, r)
		for _, leaf := range r.Leaves {
			if leaf.OID != oid {
				own(leaf.OID, r)
			}
		}
	}
	rows, _ := db.Query(ctx, indexesSQL, tables)
	var table uint32
	var i Index
	var collations []string
	var loose []bool
	target := []any{
		&table, &i.Primary, &i.Unique, &i.Deferrable, &i.Valid, &i.Predicate, &i.Name, &i.Printed, &i.Method,
		&i.Columns, &i.Families, &i.Inputs, &collations, &loose,
	}
	_, err := pgx.ForEachRow(rows, target, func() error {
		found := i
		found.Columns, found.Families, found.Inputs = slices.Clone(i.Columns), slices.Clone(i.Families), slices.Clone(i.Inputs)
		found.Collations = make([]Collation, len(collations))
		for at, name := range collations {
			found.Collations[at] = Collation{Name: name, Loose: loose[at]}
		}
		for _, r := range owners[table] {
			r.Indexes[table] = append(r.Indexes[table], found)
		}
		return nil
	})
	return problem.Doing(err, "read indexes")
}

// LeadsTo reports whether the columns of an index lead straight to the rows with values of columns: it begins with them, in any order, with none
// but the given ones in between, which the same statements compare with one value. One that is unique on some of them does so as well: the others
// only filter one row.
func LeadsTo(index, columns, given []string, unique bool) bool {
	left := len(columns)
	for _, column := range index {
		switch {
		case slices.Contains(columns, column):
			left--
		case !slices.Contains(given, column):
			return false
		}
		if left == 0 {
			return true
		}
	}
	return unique && len(index) > 0
}

// ExcludesNullsOf reports whether an index's predicate says that some of columns are not NULL, and nothing else.
func ExcludesNullsOf(predicate string, columns []string) bool {
	if strings.HasPrefix(predicate, "((") {
		predicate = strings.TrimSuffix(strings.TrimPrefix(predicate, "("), ")")
	}
	for term := range strings.SplitSeq(predicate, " AND ") {
		if !slices.ContainsFunc(columns, func(column string) bool {
			return term == "("+column+" IS NOT NULL)" || term == "("+Quote(column)+" IS NOT NULL)"
		}) {
			return false
		}
	}
	return true
}
