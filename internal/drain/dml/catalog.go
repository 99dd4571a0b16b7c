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

// Catalog is a state of the catalogue: all foreign keys of the database, and the relations that they are about. Its tables are made as they
// are asked for.
type Catalog struct {
	// Relations are by OID.
	Relations map[uint32]*pgcatalog.Relation
	Operators *pgcatalog.Operators
	Keys      []pgcatalog.ForeignKey
	// Report, if set, learns of columns that cannot be compared.
	Report func(fix, format string, args ...any)

	roots  map[uint32]uint32
	tables map[uint32]*Table
}

// Read reads all keys, and the relations that they are about or that are among oids.
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
