package orphans

import (
	"fmt"
	"strings"

	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// Keys travel in text form, whatever their type: a key that was read under boundedSettings and is cast back under
// them is the same value.

// keyed is a parent with the statements that look for orphans of its children.
type keyed struct{ *loosefk.Parent }

// auditKeys is the array of keys, typed for comparing.
func (p keyed) auditKeys(n int) string {
	if p.Composite() {
		return p.Parameter(n)
	}
	return fmt.Sprintf("$%d::pg_catalog.text[]::%s[]", n, dml.KeyType(p.KeyTypes[0]))
}

// auditKey are the values of one of auditKeys.
func (p keyed) auditKey(key string) []string {
	if p.Composite() {
		return p.Parts(key)
	}
	return []string{key}
}

// mayBeGone is gone as it can be told beside the child, whose columns have the values: where the parent is in
// another database, each may be.
func (p keyed) mayBeGone(r *loosefk.Reference, values []string) string {
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

// orphans is the part of a statement, from WITH to WHERE, that picks those of keys which are orphaned: a child meets
// the definition, no parent has the key, and no tombstone waits for it. One snapshot answers all three; a parent
// that goes between two would look as if it had left no tombstone. A child in another database is left for its own
// statements, with snapshots of their own; run.orphans has them in an order that is safe all the same.
func (p keyed) orphans(names pgcatalog.Names, r *loosefk.Reference, keysAt int, args *dml.Args) (with, from string) {
	with = fmt.Sprintf(`WITH tombstoned AS MATERIALIZED (
	SELECT wanted.key
	FROM pg_catalog.unnest(%s) AS wanted (key)
	JOIN %s AS tombstone ON %s
	WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) $%d AND tombstone.status OPERATOR(pg_catalog.=) 1
)`, p.auditKeys(keysAt), names.Render(`"public".loose_foreign_keys_deleted_records`),
		dml.Pairwise(p.KeyCompare, tombstoneKey(p.Parent, "tombstone"), p.auditKey("wanted.key")), args.Add(p.Recorded))
	same := "tombstoned.key OPERATOR(pg_catalog.=) candidate.key" // the text forms of composite keys
	if !p.Composite() {
		same = p.KeyCompare[0].Equal("tombstoned.key", "candidate.key")
	}
	from = fmt.Sprintf(`FROM pg_catalog.unnest(%s) AS candidate (key)
WHERE %s
AND NOT EXISTS (SELECT FROM tombstoned WHERE %s)`,
		p.auditKeys(keysAt), p.Without(p.auditKey("candidate.key")), same)
	if !r.Remote {
		from += "\nAND " + r.Exists(p.auditKey("candidate.key"), args)
	}
	return with, from
}

// withoutParentStatement returns the ones of keys that have no parent.
func (p keyed) withoutParentStatement(keys []string) (string, []any) {
	return p.some(keys, func(key []string, _ *dml.Args) string { return p.Without(key) })
}

// withChildStatement returns the ones of keys that have a child which meets the definition.
func (p keyed) withChildStatement(r *loosefk.Reference, keys []string) (string, []any) {
	return p.some(keys, r.Exists)
}

// some returns the ones of keys for which a condition holds, in their order.
func (p keyed) some(keys []string, holds func(key []string, args *dml.Args) string) (string, []any) {
	args := &dml.Args{}
	from := p.auditKeys(args.Add(keys))
	return fmt.Sprintf(`SELECT candidate.key::pg_catalog.text
FROM pg_catalog.unnest(%s) WITH ORDINALITY AS candidate (key, position)
WHERE %s
ORDER BY candidate.position`, from, holds(p.auditKey("candidate.key"), args)), args.Values
}

// orphansStatement returns those of keys that are orphaned.
func (p keyed) orphansStatement(names pgcatalog.Names, r *loosefk.Reference, keys []string) (string, []any) {
	args := &dml.Args{}
	with, from := p.orphans(names, r, args.Add(keys), args)
	return with + "\nSELECT candidate.key::pg_catalog.text\n" + from + "\nORDER BY " + strings.Join(p.auditKey("candidate.key"), ", "), args.Values
}

// orphanRowsStatement counts the children of orphaned keys, up to limit.
func (p keyed) orphanRowsStatement(r *loosefk.Reference, keys []string, limit int) (string, []any) {
	args := &dml.Args{}
	keysAt, limitAt := args.Add(keys), args.Add(limit)
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM (%s LIMIT $%d) AS counted", r.Rows(&p.Key, p.auditKeys(keysAt), args), limitAt), args.Values
}

// repairStatement writes the tombstones that the parent's trigger would have written for those of keys that are
// orphaned still: meanwhile a parent may have been made anew, or another session may have left a tombstone.
func (p keyed) repairStatement(names pgcatalog.Names, r *loosefk.Reference, keys []string) (string, []any) {
	args := &dml.Args{}
	with, from := p.orphans(names, r, args.Add(keys), args)
	column, form := "primary_key_text", "text"
	if p.Integer {
		column, form = "primary_key_value", "bigint"
	}
	var sql strings.Builder
	fmt.Fprintf(&sql, "INSERT INTO %s (fully_qualified_table_name, %s)\n", names.Render(`"public".loose_foreign_keys_deleted_records`), column)
	fmt.Fprintf(&sql, "%s\nSELECT $%d::pg_catalog.text, candidate.key::%s\n%s", with, args.Add(p.Recorded), form, from)
	return sql.String(), args.Values
}

// tombstoneKey is the key of a tombstone row, one value per column.
func tombstoneKey(p *loosefk.Parent, tombstone string) []string {
	if p.Integer {
		return []string{tombstone + ".primary_key_value"}
	}
	return p.Stored(tombstone + ".primary_key_text")
}
