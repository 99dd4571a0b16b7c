package dml

import (
	"context"
	_ "embed"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

//go:embed queries/roots.sql
var rootsSQL string

// Catalog holds all foreign keys of a database and their tables, as of one snapshot. Its
// method Table creates the Table of a relation on the first call.
type Catalog struct {
	// Relations holds the tables of the foreign keys and the tables that were passed to
	// Read, by OID.
	Relations map[uint32]*pgcatalog.Relation
	Operators *pgcatalog.Operators
	Keys      []pgcatalog.ForeignKey
	// Report, if set, is called for keys that are left out because their columns cannot
	// be compared.
	Report func(fix, format string, args ...any)

	// roots holds the OID of each relation's top partitioned table, by the relation's
	// OID.
	roots  map[uint32]uint32
	tables map[uint32]*Table
}

// Read reads all foreign keys of the database, the relations that they connect, and the
// relations with the given OIDs.
func Read(ctx context.Context, tx pgx.Tx, oids []uint32) (*Catalog, error) {
	c := &Catalog{tables: map[uint32]*Table{}}
	var err error
	if c.Keys, err = pgcatalog.ForeignKeys(ctx, tx); err != nil {
		return nil, err
	}
	oids = slices.Clone(oids)
	for _, k := range c.Keys {
		oids = append(oids, k.Table, k.Target)
	}
	if err := c.readRoots(ctx, tx, oids); err != nil {
		return nil, err
	}
	for _, root := range c.roots {
		oids = append(oids, root)
	}
	slices.Sort(oids)
	if c.Relations, err = pgcatalog.Read(ctx, tx, slices.Compact(oids)); err != nil {
		return nil, err
	}
	if c.Operators, err = pgcatalog.ReadOperators(ctx, tx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Catalog) readRoots(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	rows, _ := tx.Query(ctx, rootsSQL, oids)
	c.roots = map[uint32]uint32{}
	var relation, root uint32
	_, err := pgx.ForEachRow(rows, []any{&relation, &root}, func() error {
		c.roots[relation] = root
		return nil
	})
	return problem.Doing(err, "find partitioned tables")
}

// Named returns the table of that name among the relations, or nil.
func (c *Catalog) Named(schema, table string) *pgcatalog.Relation {
	for _, r := range c.Relations {
		if r.Schema == schema && r.Name == table {
			return r
		}
	}
	return nil
}
