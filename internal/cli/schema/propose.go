package schema

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// ForeignKey is a foreign key of the database, and the definition that can replace it.
type ForeignKey struct {
	// Child and Parent are the names of the tables in definitions. Table and Name are the
	// quoted names of the child table and the constraint. Constraint is the definition of
	// the constraint in SQL.
	Child         string             `json:"child"`
	Columns       []string           `json:"columns"`
	Parent        string             `json:"parent"`
	ParentColumns []string           `json:"parent_columns"`
	OnDelete      definitions.Action `json:"on_delete,omitempty"`
	Table         string             `json:"table"`
	Name          string             `json:"name"`
	Constraint    string             `json:"constraint"`
	// Reason is the reason for keeping the foreign key. It is empty if a definition can
	// replace it.
	Reason string `json:"reason,omitempty"`
	// Rows and Bytes are the size of the child table. PerParent is the number of children
	// of an average parent. Most is the number of children of the parent with the most
	// children. All except Bytes are estimates of the last ANALYZE, or 0.
	Rows      int64 `json:"rows"`
	Bytes     int64 `json:"bytes"`
	PerParent int64 `json:"rows_per_parent"`
	Most      int64 `json:"rows_of_biggest_parent"`
	// Indexed reports whether an index begins with the columns. Without one, each
	// deletion of a parent reads the complete child table.
	Indexed bool `json:"indexed"`

	key     pgcatalog.ForeignKey
	primary bool
	options definitions.Constraint
}

// Drop returns the statement that drops the foreign key.
func (k *ForeignKey) Drop() string {
	return fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s;", k.Table, k.Name)
}

//go:embed queries/keys.sql
var keysSQL string

//go:embed queries/sizes.sql
var sizesSQL string

// reader holds the catalog from which foreign keys are read. schema is the schema of
// tables that definitions name without a schema.
type reader struct {
	*dml.Catalog

	schema string
}

// Propose returns the foreign keys of a site, except those of tables in the schemas that
// leave lists. Foreign keys that are kept come last.
func Propose(ctx context.Context, site loosefk.Site, leave ...string) ([]*ForeignKey, error) {
	var keys []*ForeignKey
	r := reader{schema: site.Schema}
	err := pgcatalog.Settled(ctx, site.DB, func(tx pgx.Tx) (err error) {
		if r.Catalog, err = dml.Read(ctx, tx, nil); err != nil {
			return err
		}
		for _, key := range r.Keys {
			child, parent := r.Relations[key.Table], r.Relations[key.Target]
			if child != nil && parent != nil && !slices.Contains(leave, child.Schema) {
				keys = append(keys, r.describe(key, child, parent))
			}
		}
		return r.measure(ctx, tx, keys)
	})
	if err != nil {
		return nil, fmt.Errorf("read foreign keys: %w", err)
	}
	// All definitions of a parent must refer to the same columns. Sort the foreign keys
	// to the primary key first, so that foreign keys to other columns are kept.
	slices.SortStableFunc(keys, func(a, b *ForeignKey) int {
		return cmp.Or(cmp.Compare(a.Child, b.Child), -cmp.Compare(boolToInt(a.primary), boolToInt(b.primary)))
	})
	for {
		fitting, err := resolve(ctx, site, Chosen(keys, nil))
		if err != nil || fitting {
			slices.SortStableFunc(keys, func(a, b *ForeignKey) int {
				return cmp.Compare(boolToInt(a.Reason != ""),
					boolToInt(b.Reason != ""))
			})
			return keys, err
		}
	}
}

func boolToInt(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Chosen returns the foreign keys that definitions can replace. If children is not nil,
// it returns only foreign keys of these tables.
func Chosen(keys []*ForeignKey, children []string) (chosen []*ForeignKey) {
	for _, k := range keys {
		if k.Reason == "" && (children == nil || slices.Contains(children, k.Child)) {
			chosen = append(chosen, k)
		}
	}
	return chosen
}

func (r *reader) describe(key pgcatalog.ForeignKey, child, parent *pgcatalog.Relation) *ForeignKey {
	k := &ForeignKey{
		Child: r.definitionName(child.Table), Columns: key.Columns, Parent: r.definitionName(parent.Table),
		ParentColumns: key.TargetColumns,
		Table:         child.SQL(), Name: pgcatalog.Quote(key.Name), key: key,
	}
	primary := parent.PrimaryKey()
	order := (pgcatalog.Index{Columns: primary}).Order(k.ParentColumns)
	if k.primary = len(primary) == len(k.ParentColumns) && order != nil; k.primary {
		// If the columns have the order of the primary key, the definition does not need
		// parent_column.
		k.Columns, k.ParentColumns = make([]string, len(order)), primary
		for i, from := range order {
			k.Columns[i] = key.Columns[from]
		}
	}
	switch key.OnDelete {
	case pgcatalog.Cascade:
		k.OnDelete = definitions.Delete
	case pgcatalog.SetNull:
		k.OnDelete = definitions.Nullify
	case pgcatalog.SetDefault:
		k.Reason = "ON DELETE SET DEFAULT: no definition sets defaults"
		return k
	default:
		k.Reason = "it refuses deletions; definitions cannot"
		return k
	}
	switch {
	case key.OnDelete == pgcatalog.SetNull && len(key.Set) != len(key.Columns):
		k.Reason = fmt.Sprintf("ON DELETE SET NULL (%s) sets only some of its columns", strings.Join(key.Set, ", "))
	case parent.IsPartition():
		k.Reason = "it references a partition; only complete tables are tracked"
	default:
		k.Reason = r.conflict(key)
	}
	return k
}

// definitionName returns the name by which definitions refer to a table.
func (r *reader) definitionName(table pgcatalog.Table) string {
	part := func(name string) string {
		if strings.ContainsAny(name, `."`) {
			return pgcatalog.Quote(name)
		}
		return name
	}
	if table.Schema == r.schema {
		return part(table.Name)
	}
	return part(table.Schema) + "." + part(table.Name)
}

// refuses reports whether a foreign key can refuse the deletion of a referenced row.
func (r *reader) refuses(key pgcatalog.ForeignKey) bool {
	child := r.Relations[key.Table]
	return key.OnDelete == pgcatalog.NoAction || key.OnDelete == pgcatalog.Restrict ||
		key.OnDelete == pgcatalog.SetNull && slices.ContainsFunc(key.Set,
			func(column string) bool { return child.Columns[column].NotNull })
}

// root returns the partitioned table of a partition, and other tables unchanged.
func (r *reader) root(oid uint32) uint32 {
	if found := r.Relations[oid]; found != nil {
		return found.Root
	}
	return oid
}

// cascadeTables returns the tables from which native cascades delete rows if a row of
// table is deleted. It includes table.
func (r *reader) cascadeTables(table uint32) []uint32 {
	tables := []uint32{r.root(table)}
	for i := 0; i < len(tables); i++ {
		for _, key := range r.Keys {
			if child := r.root(key.Table); key.OnDelete == pgcatalog.Cascade && r.root(key.Target) == tables[i] &&
				!slices.Contains(tables, child) {
				tables = append(tables, child)
			}
		}
	}
	return tables
}

// conflict returns the reason why another foreign key prevents replacing this foreign key
// by a definition, or "". With the definition, the children are deleted after the commit.
// The other foreign key would then refuse a deletion that it allows now, or allow one
// that it refuses now.
func (r *reader) conflict(key pgcatalog.ForeignKey) string {
	above, below := r.cascadeTables(key.Target), []uint32{}
	if key.OnDelete == pgcatalog.Cascade {
		below = r.cascadeTables(key.Table)
	}
	for _, other := range r.Keys {
		if !r.refuses(other) || other.Name == key.Name && other.Table == key.Table {
			continue
		}
		from, to := r.root(other.Table), r.root(other.Target)
		text := fmt.Sprintf("%s of %s", other.Name, r.Relations[other.Table].Label())
		shares := from == r.root(key.Table) && slices.ContainsFunc(other.Columns,
			func(c string) bool { return slices.Contains(key.Set, c) })
		switch {
		case slices.Contains(below, to):
			return text + " refuses some of these deletions; with a definition it would refuse them after the commit, and rows would remain"
		case slices.Contains(above, to) && (slices.Contains(below, from) || key.OnDelete == pgcatalog.SetNull &&
			shares):
			return text + " would refuse the deletion, because the rows that reference it would be deleted after the commit"
		}
	}
	return ""
}

// measure adds the options of each constraint, and the estimates of the last ANALYZE.
func (r *reader) measure(ctx context.Context, tx pgx.Tx, keys []*ForeignKey) error {
	type named struct {
		table uint32
		name  string
	}
	known, sizes := map[named]*ForeignKey{}, map[uint32][2]int64{}
	var leaves []uint32
	for _, k := range keys {
		known[named{k.key.Table, k.key.Name}] = k
		for _, leaf := range r.Relations[k.key.Table].Leaves {
			leaves = append(leaves, leaf.OID)
		}
	}
	rows, _ := tx.Query(ctx, sizesSQL, leaves)
	var oid uint32
	var size [2]int64
	if _, err := pgx.ForEachRow(rows, []any{&oid, &size[0], &size[1]},
		func() error { sizes[oid] = size; return nil }); err != nil {
		return err
	}
	rows, _ = tx.Query(ctx, keysSQL)
	var key named
	var update, match, text string
	var deferrable, deferred bool
	var distinct, most float64
	_, err := pgx.ForEachRow(rows, []any{
		&key.table, &key.name, &update, &match, &deferrable, &deferred, &text,
		&distinct, &most,
	}, func() error {
		k := known[key]
		if k == nil {
			return nil
		}
		k.Constraint = text
		k.options = definitions.Constraint{Name: key.name, Deferrable: deferrable}
		if deferred {
			k.options.Initially = definitions.Deferred
		}
		if match == "f" {
			k.options.Match = definitions.Full
		}
		if update == string(pgcatalog.Restrict) {
			k.options.OnUpdate = definitions.Restrict
		}
		if k.Reason == "" && update != string(pgcatalog.NoAction) && update != string(pgcatalog.Restrict) {
			k.Reason = "its ON UPDATE changes children with their parent's key; definitions cannot"
		}
		for _, leaf := range r.Relations[key.table].Leaves {
			k.Rows += sizes[leaf.OID][0]
			k.Bytes += sizes[leaf.OID][1]
		}
		// A negative n_distinct is a share of the rows.
		if distinct < 0 {
			distinct *= -float64(k.Rows)
		}
		if distinct > 0 {
			k.PerParent = int64(math.Ceil(float64(k.Rows) / distinct))
			k.Most = max(k.PerParent, int64(most*float64(k.Rows)))
		}
		return nil
	})
	return err
}

// resolve checks the proposed definitions of keys against the database. It sets the
// Reason of each key whose definition is rejected. If it returns false, the caller must
// call it again with the remaining keys, because a rejected key may have caused the
// rejection of another key.
func resolve(ctx context.Context, site loosefk.Site, keys []*ForeignKey) (fitting bool, err error) {
	if len(keys) == 0 {
		return true, nil
	}
	text, entries, err := write(keys)
	if err != nil {
		return false, err
	}
	defs, err := definitions.Parse(definitions.File{Name: "proposed", Data: text})
	problems, listed := errors.AsType[problem.List](err)
	if err != nil && !listed {
		return false, err
	}
	if !listed {
		var parents map[string][]*loosefk.Parent
		if parents, problems, err = loosefk.Resolve(ctx, []loosefk.Site{site}, defs); err != nil {
			return false, err
		}
		for _, reference := range loosefk.References(parents[site.Name]) {
			if k := entries[reference.Definition.Key]; k != nil {
				k.Indexed = reference.Index
			}
		}
	}
	fitting = true
	for _, p := range problems {
		if p.Severity != problem.Error {
			continue
		}
		entry, _, _ := strings.Cut(p.Key, "].")
		k := entries[strings.TrimSuffix(entry, "]")+"]"]
		if k == nil {
			return false, problems
		}
		k.Reason, fitting = p.Message, false
	}
	return fitting, nil
}
