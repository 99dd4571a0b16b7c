package dml

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Below reads the tables with these OIDs and all tables below them by foreign keys, in
// one snapshot. It returns the tables with the given OIDs, by OID. A partition is
// replaced by its top partitioned table. Keys whose columns cannot be compared are left
// out: Postgres applies their action. Loose references are treated like foreign keys.
func Below(ctx context.Context, db pgcatalog.Beginner, oids []uint32, loose ...Loose) (map[uint32]*Table, error) {
	below := map[uint32]*Table{}
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		schemas, tables := LooseTables(loose)
		looseOIDs, err := pgcatalog.Named(ctx, tx, schemas, tables)
		if err != nil {
			return err
		}
		c, err := Read(ctx, tx, slices.Concat(oids, looseOIDs))
		if err != nil {
			return err
		}
		clear(below)
		var roots []*Table
		for _, oid := range oids {
			if t := c.Table(c.Relations[oid]); t != nil {
				below[oid] = t
				if !slices.Contains(roots, t) {
					roots = append(roots, t)
				}
			}
		}
		Order(c.Expand(roots, nil, func(to *Table) { c.AddLoose(to, 0, loose...) }), roots...)
		return nil
	})
	return below, problem.Doing(err, "read the tables below")
}

// Table returns the Table of a relation, or nil if the relation is not a table. Each
// table has only one Table. A partition has the Table of its top partitioned table.
func (c *Catalog) Table(of *pgcatalog.Relation) *Table {
	if of == nil || !of.IsTable() {
		return nil
	}
	if known := c.tables[of.Root]; known != nil {
		return known
	}
	t := &Table{Relation: c.Relations[of.Root]}
	c.tables[of.Root] = t
	return t
}

// Expand adds each key to the table that it refers to, for all tables that deletions from
// the roots reach. It returns the tables whose rows may be deleted. adapt, if set, may
// change a key, and returns false if the key must be left out. more, if set, may add keys
// to a table.
func (c *Catalog) Expand(roots []*Table, adapt func(to *Table, from *pgcatalog.Relation, f *Ref) bool,
	more func(to *Table),
) map[*Table]bool {
	byTarget := map[uint32][]pgcatalog.ForeignKey{}
	for _, k := range c.Keys {
		byTarget[c.roots[k.Target]] = append(byTarget[c.roots[k.Target]], k)
	}
	deleted := map[*Table]bool{}
	for _, t := range roots {
		deleted[t] = true
	}
	for todo := slices.Clone(roots); len(todo) > 0; todo = todo[1:] {
		t := todo[0]
		for _, k := range byTarget[t.OID] {
			f := c.ref(t, k)
			if f == nil || adapt != nil && !adapt(t, c.Relations[k.Table], f) {
				continue
			}
			t.Refs = append(t.Refs, f)
		}
		if more != nil {
			more(t)
		}
		for _, f := range t.Refs {
			if f.Action == Remove && !deleted[f.Table] {
				deleted[f.Table] = true
				todo = append(todo, f.Table)
			}
		}
	}
	return deleted
}

// ref returns the Ref for a foreign key that refers to t. It returns nil if only Postgres
// can apply the key's action.
func (c *Catalog) ref(t *Table, k pgcatalog.ForeignKey) *Ref {
	from := c.Relations[k.Table]
	if from == nil || !from.IsTable() {
		return nil
	}
	f := &Ref{
		Constraint: k.Name, target: k.Target, Table: c.Table(from), Leaves: from.Leaves, From: FromItem(from),
		Columns: k.Columns, Targets: k.TargetColumns, set: k.Set,
	}
	if !c.compare(f, from) {
		return nil
	}
	if k.Period {
		f.compare[len(f.compare)-1] = pgcatalog.Comparison{Operator: "OPERATOR(pg_catalog.&&)"}
	}
	if k.Target != t.OID {
		f.Only = map[uint32]bool{}
		for _, leaf := range c.Relations[k.Target].Leaves {
			f.Only[leaf.OID] = true
		}
	}
	switch k.OnDelete {
	case pgcatalog.Cascade:
		f.Action = Remove
	case pgcatalog.SetNull:
		f.Action = Nullify
		for _, column := range f.set {
			if f.Table.Columns[column].NotNull {
				// The key's own action would fail too, since it runs the same UPDATE.
				f.Action, f.setNull = Forbid, true
			}
		}
	case pgcatalog.SetDefault:
		f.Action = SetDefault
	default:
		f.Action = Forbid
	}
	if (f.Action == Nullify || f.Action == SetDefault) &&
		slices.ContainsFunc(f.set, func(column string) bool { return f.Table.Columns[column].Partitioning }) {
		// Changing a partition column can move the row to another partition. Only
		// Postgres applies such an action.
		return nil
	}
	return f
}

// compare sets the comparison of each column of a key with the column that it refers to.
// It returns false if two columns cannot be compared. A comparison that depends on the
// session's time zone is used too, since the native key uses it.
func (c *Catalog) compare(f *Ref, from *pgcatalog.Relation) bool {
	for i, key := range c.Relations[f.target].Key(f.Targets) {
		found, err := c.Operators.Compare(key, from.Columns[f.Columns[i]])
		if err != nil && found.Operator == "" {
			if c.Report != nil {
				c.Report("give the two columns the same type",
					"%s.%s refers to %s: %v", f.Table.Label(), f.Columns[i], c.Relations[f.target].Label(), err)
			}
			return false
		}
		f.compare = append(f.compare, found)
	}
	return true
}

// FromItem returns the item of a FROM clause for a relation. As with native foreign keys,
// rows of tables that inherit from it are not included.
func FromItem(of *pgcatalog.Relation) string {
	if of.Kind == "p" {
		return of.SQL()
	}
	return "ONLY " + of.SQL()
}

// Order sorts the keys of each table by Part. Within a part, keys whose rows are deleted
// come first, so that no row is first set to NULL and then deleted. After that, a table
// that refers to other tables of the plan comes before them. Order returns the tables
// among deleted, children first.
func Order(deleted map[*Table]bool, roots ...*Table) []*Table {
	var reachable []*Table
	rank := map[*Table]int{}
	var visit func(t *Table)
	visit = func(t *Table) {
		if _, seen := rank[t]; seen {
			return
		}
		rank[t] = 0 // Mark the table before its children, so that visit ends in a cycle of keys.
		for _, f := range t.Refs {
			if f.Action != Forbid {
				visit(f.Table)
			}
		}
		reachable = append(reachable, t)
		rank[t] = len(reachable)
	}
	for _, t := range roots {
		visit(t)
	}
	for t := range maps.Keys(rank) {
		slices.SortStableFunc(t.Refs, func(a, b *Ref) int {
			if a.Part != b.Part {
				return a.Part - b.Part
			}
			switch {
			case a.Action == Remove && b.Action != Remove:
				return -1
			case a.Action != Remove && b.Action == Remove:
				return 1
			}
			return rank[a.Table] - rank[b.Table]
		})
	}
	return slices.DeleteFunc(reachable, func(t *Table) bool { return !deleted[t] })
}

// Unindexed returns the leaves of a key that have no index on its columns.
func (c *Catalog) Unindexed(f *Ref) []pgcatalog.Table {
	return slices.DeleteFunc(slices.Clone(f.Leaves), func(leaf pgcatalog.Table) bool {
		return slices.ContainsFunc(f.Columns, func(column string) bool {
			return c.Relations[leaf.OID] != nil && c.Relations[leaf.OID].Leads(leaf.OID, column) ||
				f.Table.Leads(leaf.OID, column)
		})
	})
}
