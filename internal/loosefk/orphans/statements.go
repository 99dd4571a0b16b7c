package orphans

import (
	"fmt"
	"strings"

	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// Statements pass keys of all types in text form. A key that is read and cast back under
// the settings of loosefk.Bounds keeps its value.

// keyed is a parent with the statements that search for orphans of its children.
type keyed struct{ *loosefk.Parent }

// auditKeys returns the SQL expression for the array of keys in parameter n. The elements
// have the type in which keys are compared.
func (p keyed) auditKeys(n int) string {
	if p.Composite() {
		return p.Parameter(n)
	}
	return fmt.Sprintf("$%d::pg_catalog.text[]::%s[]", n, dml.KeyType(p.KeyTypes[0]))
}

// auditKey returns the SQL expressions for the columns of key, which is an element of
// auditKeys.
func (p keyed) auditKey(key string) []string {
	if p.Composite() {
		return p.Parts(key)
	}
	return []string{key}
}

// mayLackParent returns the condition that no parent has the values of the child's
// columns. If the parent is in another database, the condition is always true.
func (p keyed) mayLackParent(r *loosefk.Reference, values []string) string {
	if r.Remote {
		return "true"
	}
	key := make([]string, len(values))
	for i, value := range values {
		if key[i] = value; r.Bases[i] != p.KeyTypes[i] && !pgcatalog.Integer(p.KeyTypes[i]) {
			key[i] += "::" + p.KeyTypes[i]
		}
	}
	return p.Without(key)
}

// withoutParentStatement returns the query for the keys that have no parent.
func (p keyed) withoutParentStatement(keys []string) (string, []any) {
	return p.keysWhere(keys, func(key []string, _ *dml.Args) string { return p.Without(key) })
}

// withChildStatement returns the query for the keys with a child that meets the
// definition's conditions.
func (p keyed) withChildStatement(r *loosefk.Reference, keys []string) (string, []any) {
	return p.keysWhere(keys, r.Exists)
}

// keysWhere returns the query for the keys that meet a condition. The function holds
// returns the condition for one key. The query returns the keys in the given order.
func (p keyed) keysWhere(keys []string, holds func(key []string, args *dml.Args) string) (string, []any) {
	args := &dml.Args{}
	from := p.auditKeys(args.Add(keys))
	return fmt.Sprintf(`SELECT candidate.key::pg_catalog.text
FROM pg_catalog.unnest(%s) WITH ORDINALITY AS candidate (key, position)
WHERE %s
ORDER BY candidate.position`, from, holds(p.auditKey("candidate.key"), args)), args.Values
}

// orphansStatement returns the query for the orphaned keys: a child meets the
// definition's conditions, no parent has the key, and there is no tombstone for it. The
// query checks all three in one snapshot: otherwise a parent that is deleted between two
// checks would seem to have no tombstone. If the child is in another database, the query
// does not check the child. run.orphans then checks it in a separate query.
func (p keyed) orphansStatement(names pgcatalog.Names, r *loosefk.Reference, keys []string) (string, []any) {
	args := &dml.Args{}
	from, candidate := p.auditKeys(args.Add(keys)), p.auditKey("candidate.key")
	// Composite keys are compared in text form.
	same := "tombstoned.key OPERATOR(pg_catalog.=) candidate.key"
	if !p.Composite() {
		same = p.KeyCompare[0].Equal("tombstoned.key", "candidate.key")
	}
	sql := fmt.Sprintf(`WITH tombstoned AS MATERIALIZED (
	SELECT wanted.key
	FROM pg_catalog.unnest(%[1]s) AS wanted (key)
	JOIN %[2]s AS tombstone ON %[3]s
	WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) $%[4]d AND tombstone.status OPERATOR(pg_catalog.=) 1
)
SELECT candidate.key::pg_catalog.text
FROM pg_catalog.unnest(%[1]s) AS candidate (key)
WHERE %[5]s
AND NOT EXISTS (SELECT FROM tombstoned WHERE %[6]s)`, from, names.Render(`"public".loose_foreign_keys_deleted_records`),
		dml.Pairwise(p.KeyCompare, p.OfTombstone("tombstone"), p.auditKey("wanted.key")), args.Add(p.Recorded),
		p.Without(candidate), same)
	if !r.Remote {
		sql += "\nAND " + r.Exists(candidate, args)
	}
	return sql + "\nORDER BY " + strings.Join(candidate, ", "), args.Values
}

// orphanRowsStatement returns the query that counts the children of orphaned keys, up to
// limit.
func (p keyed) orphanRowsStatement(r *loosefk.Reference, keys []string, limit int) (string, []any) {
	args := &dml.Args{}
	keysAt, limitAt := args.Add(keys), args.Add(limit)
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM (%s LIMIT $%d) AS counted",
		r.Rows(&p.Key, p.auditKeys(keysAt), args), limitAt), args.Values
}

// repairStatement returns the statement that inserts tombstones of keys as the parent's
// trigger does.
func (p keyed) repairStatement(names pgcatalog.Names, keys []string) (string, []any) {
	column, form := "primary_key_text", "text"
	if p.Integer {
		column, form = "primary_key_value", "bigint"
	}
	return fmt.Sprintf(`INSERT INTO %s (fully_qualified_table_name, %s)
SELECT $1::pg_catalog.text, orphaned.key::%s FROM pg_catalog.unnest(%s) AS orphaned (key)`,
			names.Render(`"public".loose_foreign_keys_deleted_records`), column, form, p.auditKeys(2)),
		[]any{p.Recorded, keys}
}
