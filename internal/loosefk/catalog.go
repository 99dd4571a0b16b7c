package loosefk

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
)

// catalog is the tables of a database that a set of definitions names.
type catalog struct {
	schema    string
	relations map[definitions.Name]*pgcatalog.Relation
	operators *pgcatalog.Operators
}

// lookup returns the table of that name, or nil.
func (c *catalog) lookup(name definitions.Name) *pgcatalog.Relation {
	return c.relations[c.qualified(name)]
}

func (c *catalog) qualified(name definitions.Name) definitions.Name {
	if name.Schema == "" {
		name.Schema = c.schema
	}
	return name
}

// readCatalog reads the named tables in a fixed number of statements.
func readCatalog(ctx context.Context, tx pgx.Tx, schema string, names []definitions.Name) (*catalog, error) {
	c := &catalog{schema: schema, relations: map[definitions.Name]*pgcatalog.Relation{}}
	schemas, tables := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		name = c.qualified(name)
		schemas[i], tables[i] = name.Schema, name.Table
	}
	oids, err := pgcatalog.Named(ctx, tx, schemas, tables)
	if err != nil {
		return nil, err
	}
	found, err := pgcatalog.Read(ctx, tx, oids)
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		c.relations[definitions.Name{Schema: r.Schema, Table: r.Name}] = r
	}
	if c.operators, err = pgcatalog.ReadOperators(ctx, tx); err != nil {
		return nil, err
	}
	return c, nil
}

// defaultKey returns the column that definitions refer to if they name none. It is the
// primary key, or id if that alone identifies a row, as in partitioned tables with the
// key (id, partition).
func defaultKey(r *pgcatalog.Relation) string {
	key := r.PrimaryKey()
	switch {
	case len(key) == 1:
		return key[0]
	case identifies(r, "id"):
		return "id"
	default:
		return ""
	}
}

// identifies reports whether the column is unique. A unique index of a partitioned table
// must contain its partition key, so there a column of the primary key is accepted.
func identifies(r *pgcatalog.Relation, column string) bool {
	return r.Unique(column) || r.Kind == "p" && slices.Contains(r.PrimaryKey(), column)
}
