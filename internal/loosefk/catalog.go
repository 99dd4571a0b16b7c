package loosefk

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
)

// catalog holds the tables of a database that definitions name.
type catalog struct {
	schema    string
	relations map[definitions.Name]*pgcatalog.Relation
	operators *pgcatalog.Operators
}

// lookup returns the table with a name, or nil.
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

// defaultKey returns the column that a definition refers to if it names no column of the
// parent: the primary key if that has one column, else the column id if uniqueColumn
// accepts it, else "".
func defaultKey(r *pgcatalog.Relation) string {
	key := r.PrimaryKey()
	switch {
	case len(key) == 1:
		return key[0]
	case uniqueColumn(r, "id"):
		return "id"
	default:
		return ""
	}
}

// uniqueColumn reports whether the values of the column identify a row. A unique index of
// a partitioned table must contain the partition key. So in a partitioned table, each
// column of the primary key is accepted, such as id in the key (id, partition).
func uniqueColumn(r *pgcatalog.Relation, column string) bool {
	return r.Unique(column) || r.Kind == "p" && slices.Contains(r.PrimaryKey(), column)
}

// ordered returns the valid B-tree indexes of a table: of r itself, or of one of its
// partitions. by[i] is the comparison of columns[i]. In the result, an index column has
// the name "" if the index cannot be used for the comparison of that column.
func ordered(r *pgcatalog.Relation, table uint32, columns []string, by []pgcatalog.Comparison,
	operators *pgcatalog.Operators,
) []pgcatalog.Index {
	var found []pgcatalog.Index
	for _, i := range r.Indexes[table] {
		if i.Method != "btree" || !i.Valid {
			continue
		}
		i.Columns = slices.Clone(i.Columns)
		for position, column := range i.Columns {
			if n := slices.Index(columns, column); n >= 0 && !operators.Serves(i, position, by[n]) {
				i.Columns[position] = ""
			}
		}
		found = append(found, i)
	}
	return found
}

// serves reports whether one of the indexes leads directly to the rows with given values
// in columns. The index must begin with columns, in any order. The columns in given,
// which the same statements compare with one value each, may be before or between them. A
// unique index on some of these columns is sufficient too: the other columns then only
// filter one row.
func serves(indexes []pgcatalog.Index, columns, given []string) bool {
	return slices.ContainsFunc(indexes, func(i pgcatalog.Index) bool {
		compared := slices.Concat(columns, given)
		if i.Predicate != "" && !pgcatalog.ExcludesNullsOf(i.Predicate, compared) {
			return false
		}
		return pgcatalog.LeadsTo(i.Columns, columns, given, i.Unique)
	})
}

// NoIndexReason returns the reason for which statements cannot use any index on the
// columns, or "".
func (r *Reference) NoIndexReason() string {
	if r.Index {
		return ""
	}
	return r.noIndexReason
}

// uniqueOnExactly reports whether the table has a unique index on exactly these columns,
// in any order.
func uniqueOnExactly(r *pgcatalog.Relation, columns []string) bool {
	return slices.ContainsFunc(r.Indexes[r.OID], func(i pgcatalog.Index) bool {
		return i.Unique && i.Complete() && len(i.Columns) == len(columns) && i.Order(columns) != nil
	})
}

// deferrable reports whether the key is unique only because of deferrable constraints.
func deferrable(r *pgcatalog.Relation, columns []string) (only bool) {
	for _, i := range r.Indexes[r.OID] {
		if !i.Unique || !i.Complete() || i.Order(columns) == nil || !i.Primary && len(i.Columns) != len(columns) {
			continue
		}
		if only = i.Deferrable; !only {
			return false
		}
	}
	return only
}

// bindIndexes finds the indexes on the reference's columns. It sets Index, Indexed, Order
// and Stepped. For each table without an index, it stores the statement that creates one
// in CreateIndex.
func (r *Reference) bindIndexes(child *pgcatalog.Relation, operators *pgcatalog.Operators) {
	columns := r.Definition.Columns
	tables := child.Leaves
	if len(tables) == 0 {
		tables = []Table{child.Table}
	}
	compared, by := slices.Clone(columns), slices.Clone(r.Compare)
	var given []string
	for _, condition := range r.Conditions {
		given = append(given, condition.Column)
		compared, by = append(compared, condition.Column), append(by, condition.Compare)
	}
	r.Index, r.Stepped, r.Indexed = true, true, map[uint32]bool{}
	r.CreateIndex = map[uint32]string{}
	for _, table := range tables {
		r.Indexed[table.OID] = serves(ordered(child, table.OID, compared, by, operators), columns, given)
		r.Index = r.Index && r.Indexed[table.OID]
		if !r.Indexed[table.OID] {
			r.CreateIndex[table.OID] = child.CreateIndex(table, columns...)
		}
		order, complete := indexOrder(ordered(child, table.OID, columns, r.Own, operators), columns, r.Order)
		if r.Order == nil {
			r.Order = order
		}
		r.Stepped = r.Stepped && complete
	}
}

// indexOrder returns the positions of columns in the order of the first index that has
// all keys. If wanted is not nil, the index must have that order. If there is no such
// index, complete is false, and order is wanted or the order of columns.
func indexOrder(indexes []pgcatalog.Index, columns []string, wanted []int) (order []int, complete bool) {
	for _, i := range indexes {
		found := i.Order(columns)
		all := i.Complete() || len(columns) == 1 && pgcatalog.ExcludesNullsOf(i.Predicate, columns)
		if found != nil && all && (wanted == nil || slices.Equal(found, wanted)) {
			return found, true
		}
	}
	if wanted == nil {
		wanted = make([]int, len(columns))
		for i := range wanted {
			wanted[i] = i
		}
	}
	return wanted, false
}

// Fingerprint returns a text that changes if the tables of parents and children in one
// database change, or the columns that their tombstones record. The result of Resolve is
// then outdated. Fingerprint is much cheaper than Resolve.
//
// A table's row in pg_class gets a new xmin with nearly every change of its definition,
// but not with new statistics, which are written in place. A renamed column or a new
// index does not change that row, so the fingerprint also includes the columns and
// indexes. It includes all partitions, so it changes if one is attached or detached. It
// includes the OID of the function that records keys, because each recorded key has a
// function of its own.
func Fingerprint(ctx context.Context, db database.Sender, name string, parents []*Parent) (string, error) {
	var fingerprint string
	row := database.After(ctx, db, database.GenericPlan, statement("fingerprint"), tablesIn(name, parents))
	if err := row.Scan(&fingerprint); err != nil {
		return "", fmt.Errorf("read fingerprint of tables: %w", err)
	}
	return fingerprint, nil
}

// tablesIn returns the OIDs of the tables of parents and children that are in one
// database.
func tablesIn(name string, parents []*Parent) (oids []uint32) {
	for _, parent := range parents {
		if parent.Database == name {
			oids = append(oids, parent.OID)
		}
		for _, reference := range parent.References {
			if reference.Database == name {
				oids = append(oids, reference.Child.OID)
			}
		}
	}
	return oids
}
