package ghostuser

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// foreignKey is a key that refers to users.
type foreignKey struct {
	pgcatalog.ForeignKey
	// column is the one that refers to the user's id, or the first where none does.
	column string
	// whole tells that the key is this one column and refers to users by id.
	whole bool
}

// catalog is the part of a database that refers to users.
type catalog struct {
	schema string
	users  *pgcatalog.Relation
	// tables are those of the lists and those with keys, by OID.
	tables map[uint32]*pgcatalog.Relation
	keys   []foreignKey

	operators *pgcatalog.Operators
}

// readCatalog reads all tables of the schema and of the others that lists name, and every key to users.
func readCatalog(ctx context.Context, tx pgx.Tx, schema string, schemas []string) (*catalog, error) {
	c := &catalog{schema: schema}
	oids, err := pgcatalog.InSchemas(ctx, tx, append(schemas, schema))
	if err != nil {
		return nil, err
	}
	users, err := pgcatalog.Named(ctx, tx, []string{schema}, []string{"users"})
	if err != nil {
		return nil, err
	}
	keys, err := pgcatalog.ForeignKeys(ctx, tx, users)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		oids = append(oids, key.Table)
		at := max(0, slices.Index(key.TargetColumns, "id"))
		c.keys = append(c.keys, foreignKey{key, key.Columns[at], slices.Equal(key.TargetColumns, []string{"id"})})
	}
	if c.tables, err = pgcatalog.Read(ctx, tx, oids); err != nil {
		return nil, err
	}
	if c.operators, err = pgcatalog.ReadOperators(ctx, tx); err != nil {
		return nil, err
	}
	c.users = c.named(schema, "users")
	return c, nil
}

// named returns the table of that name, or nil.
func (c *catalog) named(schema, table string) *pgcatalog.Relation {
	for _, r := range c.tables {
		if r.Schema == schema && r.Name == table {
			return r
		}
	}
	return nil
}

// label is a table's name for people, logs and statistics, without the schema where that is the database's own.
func (c *catalog) label(t pgcatalog.Table) string {
	if t.Schema == c.schema {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// labels are those of all tables that can be listed.
func (c *catalog) labels() []string {
	var labels []string
	for _, r := range c.tables {
		if !r.IsPartition() {
			labels = append(labels, c.label(r.Table))
		}
	}
	slices.Sort(labels)
	return labels
}
