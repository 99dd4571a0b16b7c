package dryrun

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// survey holds the catalogue's facts about the children of definitions and about all tables that foreign keys
// lead to from there.
type survey struct {
	// keys are the foreign keys by the table they refer to. Keys that partitions have from their parents are
	// left out.
	keys map[uint32][]pgcatalog.ForeignKey
	// parts and whole are the partitions of a table and the table of a partition.
	parts map[uint32][]uint32
	whole map[uint32]uint32
	// tables are the ones that statements may read: children, tables with foreign keys, and all their partitions.
	tables map[uint32]*surveyTable
	// reserved words need quotes; taken are names that an index cannot get, by schema.
	reserved map[string]bool
	taken    map[string]map[string]bool
}

type surveyTable struct {
	pgcatalog.Table
	kind string
	// pages is the size as of the last vacuum or analyze: asking for the true one waits for locks.
	pages   int64
	indexes []surveyIndex
}

type surveyIndex struct {
	name string
	// columns are the key columns in order; "" is an expression, or a column under another collation.
	columns []string
	method  string
	// valid is false while the index is being built, and where building it failed.
	valid     bool
	unique    bool
	predicate string
}

//go:embed queries/partitions.sql
var partitionsSQL string

//go:embed queries/tables.sql
var tablesSQL string

//go:embed queries/predicates.sql
var predicatesSQL string

//go:embed queries/taken.sql
var takenSQL string

// An index compares by its own collation, and serves no other.
const indexesSQL = `
SELECT index.indrelid, class.relname, method.amname, index.indisvalid AND index.indisready AND index.indislive, index.indisunique,
       ` + pgcatalog.PredicateSQL + `,
       ARRAY(
           SELECT coalesce(attribute.attname, '')::pg_catalog.text
           FROM pg_catalog.unnest(index.indkey::smallint[]) WITH ORDINALITY AS key (number, position)
           LEFT JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = key.number
               AND index.indcollation[key.position::integer - 1] IN (0, attribute.attcollation)
           WHERE key.position <= index.indnkeyatts
           ORDER BY key.position
       )
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_am AS method ON method.oid = class.relam
WHERE index.indrelid = ANY ($1)
ORDER BY index.indrelid, class.relname`

const reservedSQL = `SELECT word FROM pg_catalog.pg_get_keywords() WHERE catcode <> 'U'`

// readSurvey reads the catalogue in a handful of statements, whatever the number of definitions.
func readSurvey(ctx context.Context, site Site, sites []Site, timeout time.Duration) (*survey, error) {
	s := &survey{
		keys: map[uint32][]pgcatalog.ForeignKey{}, parts: map[uint32][]uint32{}, whole: map[uint32]uint32{},
		tables: map[uint32]*surveyTable{}, reserved: map[string]bool{}, taken: map[string]map[string]bool{},
	}
	err := pgcatalog.Settled(ctx, site.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, bounded(timeout)); err != nil {
			return fmt.Errorf("open read-only transaction: %w", err)
		}
		keys, err := pgcatalog.AllForeignKeys(ctx, tx)
		for _, key := range keys {
			s.keys[key.Target] = append(s.keys[key.Target], key)
		}
		if err == nil {
			err = s.readPartitions(ctx, tx)
		}
		wanted := s.wanted(site.Name, sites)
		for _, read := range []func(context.Context, pgx.Tx, []uint32) error{s.readTables, s.readIndexes, s.readNames} {
			if err == nil {
				err = read(ctx, tx, wanted)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	return s, nil
}

// wanted are the tables that deletions among the children in the database may read, wherever their parents are.
func (s *survey) wanted(database string, sites []Site) []uint32 {
	var wanted []uint32
	add := func(oid uint32) {
		for _, part := range s.tree(oid) {
			if !slices.Contains(wanted, part) {
				wanted = append(wanted, part)
			}
		}
	}
	for _, site := range sites {
		for _, parent := range site.Parents {
			for _, reference := range parent.References {
				if reference.Database != database || !reference.Usable() {
					continue
				}
				add(reference.Child.OID)
				needs, _ := s.below(reference.Child)
				for _, n := range needs {
					add(n.table)
				}
			}
		}
	}
	return wanted
}

// tree is a table with all its partitions, itself first.
func (s *survey) tree(oid uint32) []uint32 {
	tree := []uint32{oid}
	for _, part := range s.parts[oid] {
		tree = append(tree, s.tree(part)...)
	}
	return tree
}

// leaves are the tables of a tree that hold rows.
func (s *survey) leaves(oid uint32) []*surveyTable {
	var leaves []*surveyTable
	for _, part := range s.tree(oid) {
		if t := s.tables[part]; t != nil && t.kind == "r" {
			leaves = append(leaves, t)
		}
	}
	return leaves
}

// each calls do for every row of a query, scanned into its targets.
func each(ctx context.Context, tx pgx.Tx, sql string, args, into []any, do func()) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error { do(); return nil })
	return err
}

func (s *survey) readPartitions(ctx context.Context, tx pgx.Tx) error {
	var whole, part uint32
	return each(ctx, tx, partitionsSQL, nil, []any{&whole, &part}, func() {
		s.parts[whole] = append(s.parts[whole], part)
		s.whole[part] = whole
	})
}

func (s *survey) readTables(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	var found surveyTable
	return each(ctx, tx, tablesSQL, []any{oids}, []any{&found.OID, &found.Schema, &found.Name, &found.kind, &found.pages}, func() {
		t := found
		s.tables[t.OID] = &t
	})
}

func (s *survey) readIndexes(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	var oid uint32
	var found surveyIndex
	into := []any{&oid, &found.name, &found.method, &found.valid, &found.unique, &found.predicate, &found.columns}
	err := each(ctx, tx, indexesSQL, []any{oids}, into, func() {
		if t := s.tables[oid]; t != nil {
			index := found
			index.columns = slices.Clone(found.columns)
			t.indexes = append(t.indexes, index)
		}
	})
	if err != nil {
		return err
	}
	return pgcatalog.Unlocked(ctx, tx, func(nested pgx.Tx) error {
		return each(ctx, nested, predicatesSQL, []any{oids}, []any{&oid, &found.name, &found.predicate}, func() {
			t := s.tables[oid]
			if t == nil {
				return
			}
			if at := slices.IndexFunc(t.indexes, func(i surveyIndex) bool { return i.name == found.name }); at >= 0 {
				t.indexes[at].predicate = found.predicate
			}
		})
	})
}

// readNames reads what makes names: the words that need quotes, and the names of indexes that are there.
func (s *survey) readNames(ctx context.Context, tx pgx.Tx, _ []uint32) error {
	var schema, name string
	if err := each(ctx, tx, reservedSQL, nil, []any{&name}, func() { s.reserved[name] = true }); err != nil {
		return err
	}
	for _, t := range s.tables {
		s.taken[t.Schema] = map[string]bool{}
	}
	schemas := slices.Collect(maps.Keys(s.taken))
	return each(ctx, tx, takenSQL, []any{schemas}, []any{&schema, &name}, func() { s.taken[schema][name] = true })
}
