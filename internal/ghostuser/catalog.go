package ghostuser

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
)

// catalog is the state of the database that the lists and the keys to users are about.
type catalog struct {
	*drain.Catalog

	schema string
	users  *pgcatalog.Relation
}

// readCatalog reads all tables of the schema and of the others that lists name, and every foreign key.
func readCatalog(ctx context.Context, tx pgx.Tx, schema string, schemas []string) (*catalog, error) {
	oids, err := pgcatalog.InSchemas(ctx, tx, append(schemas, schema))
	if err != nil {
		return nil, err
	}
	found, err := drain.Read(ctx, tx, oids)
	if err != nil {
		return nil, err
	}
	c := &catalog{Catalog: found, schema: schema}
	c.users = c.named(schema, "users")
	return c, nil
}

// named returns the table of that name, or nil.
func (c *catalog) named(schema, table string) *pgcatalog.Relation {
	for _, r := range c.Relations {
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
	for _, r := range c.Relations {
		if !r.IsPartition() {
			labels = append(labels, c.label(r.Table))
		}
	}
	slices.Sort(labels)
	return labels
}
