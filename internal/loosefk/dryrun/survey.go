package dryrun

import (
	"context"
	"fmt"
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
	keys map[uint32][]foreignKey
	// parts and whole are the partitions of a table and the table of a partition.
	parts map[uint32][]uint32
	whole map[uint32]uint32
	// tables are the ones that statements may read: children, tables with foreign keys, and all their partitions.
	tables map[uint32]*surveyTable
	// reserved words need quotes; taken are names that an index cannot get, by schema.
	reserved map[string]bool
	taken    map[string]map[string]bool
}

// foreignKey is a real foreign key: columns of a table that refer to rows of another one.
type foreignKey struct {
	table   uint32
	label   string
	columns []string
	// action is pg_constraint.confdeltype.
	action string
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

const foreignKeysSQL = `
SELECT con.confrelid, con.conrelid, namespace.nspname, class.relname, con.confdeltype::pg_catalog.text,
       ARRAY(
           SELECT attribute.attname::pg_catalog.text
           FROM pg_catalog.unnest(con.conkey) WITH ORDINALITY AS key (number, position)
           JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = con.conrelid AND attribute.attnum = key.number
           ORDER BY key.position
       )
FROM pg_catalog.pg_constraint AS con
JOIN pg_catalog.pg_class AS class ON class.oid = con.conrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE con.contype = 'f' AND con.conparentid = 0
ORDER BY namespace.nspname, class.relname, con.conname, con.oid`

const partitionsSQL = `
SELECT inherits.inhparent, inherits.inhrelid
FROM pg_catalog.pg_inherits AS inherits
JOIN pg_catalog.pg_class AS class ON class.oid = inherits.inhrelid
WHERE class.relispartition AND NOT inherits.inhdetachpending
ORDER BY class.relname, class.oid`

const surveyTablesSQL = `
SELECT class.oid, namespace.nspname, class.relname, class.relkind::pg_catalog.text, class.relpages
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.oid = ANY ($1) AND class.relkind IN ('r', 'p')`

// An index compares by its own collation, and serves no other.
const surveyIndexesSQL = `
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

// To show a predicate is to lock its table.
const predicatesSQL = `
SELECT index.indrelid, class.relname, pg_catalog.pg_get_expr(index.indpred, index.indrelid)
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
WHERE index.indrelid = ANY ($1) AND index.indpred IS NOT NULL`

const reservedSQL = `SELECT word FROM pg_catalog.pg_get_keywords() WHERE catcode <> 'U'`

const takenSQL = `
SELECT namespace.nspname, class.relname
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = ANY ($1) AND class.relname ~ '_idx[0-9]*$'`

// readSurvey reads the catalogue in a handful of statements, whatever the number of definitions.
func readSurvey(ctx context.Context, site Site, sites []Site, timeout time.Duration) (*survey, error) {
	s := &survey{
		keys: map[uint32][]foreignKey{}, parts: map[uint32][]uint32{}, whole: map[uint32]uint32{},
		tables: map[uint32]*surveyTable{}, reserved: map[string]bool{}, taken: map[string]map[string]bool{},
	}
	err := pgcatalog.Settled(ctx, site.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, bounded(timeout)); err != nil {
			return fmt.Errorf("open read-only transaction: %w", err)
		}
		if err := s.readKeys(ctx, tx); err != nil {
			return fmt.Errorf("read foreign keys: %w", err)
		}
		if err := s.readPartitions(ctx, tx); err != nil {
			return fmt.Errorf("read partitions: %w", err)
		}
		wanted := s.wanted(site.Name, sites)
		if err := s.readTables(ctx, tx, wanted); err != nil {
			return fmt.Errorf("read tables: %w", err)
		}
		if err := s.readIndexes(ctx, tx, wanted); err != nil {
			return fmt.Errorf("read indexes: %w", err)
		}
		if err := s.readNames(ctx, tx); err != nil {
			return fmt.Errorf("read names: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
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

func (s *survey) readKeys(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, foreignKeysSQL)
	if err != nil {
		return err
	}
	var to uint32
	var from pgcatalog.Table
	var action string
	var columns []string
	_, err = pgx.ForEachRow(rows, []any{&to, &from.OID, &from.Schema, &from.Name, &action, &columns}, func() error {
		s.keys[to] = append(s.keys[to], foreignKey{table: from.OID, label: from.Label(), columns: slices.Clone(columns), action: action})
		return nil
	})
	return err
}

func (s *survey) readPartitions(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, partitionsSQL)
	if err != nil {
		return err
	}
	var whole, part uint32
	_, err = pgx.ForEachRow(rows, []any{&whole, &part}, func() error {
		s.parts[whole] = append(s.parts[whole], part)
		s.whole[part] = whole
		return nil
	})
	return err
}

func (s *survey) readTables(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	rows, err := tx.Query(ctx, surveyTablesSQL, oids)
	if err != nil {
		return err
	}
	var found surveyTable
	_, err = pgx.ForEachRow(rows, []any{&found.OID, &found.Schema, &found.Name, &found.kind, &found.pages}, func() error {
		t := found
		s.tables[t.OID] = &t
		return nil
	})
	return err
}

func (s *survey) readIndexes(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	rows, err := tx.Query(ctx, surveyIndexesSQL, oids)
	if err != nil {
		return err
	}
	var oid uint32
	var found surveyIndex
	_, err = pgx.ForEachRow(rows, []any{&oid, &found.name, &found.method, &found.valid, &found.unique, &found.predicate, &found.columns}, func() error {
		if t := s.tables[oid]; t != nil {
			index := found
			index.columns = slices.Clone(found.columns)
			t.indexes = append(t.indexes, index)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pgcatalog.Unlocked(ctx, tx, func(nested pgx.Tx) error {
		rows, err := nested.Query(ctx, predicatesSQL, oids)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&oid, &found.name, &found.predicate}, func() error {
			if t := s.tables[oid]; t != nil {
				for i := range t.indexes {
					if t.indexes[i].name == found.name {
						t.indexes[i].predicate = found.predicate
					}
				}
			}
			return nil
		})
		return err
	})
}

// readNames reads what makes names: the words that need quotes, and the names of indexes that are there.
func (s *survey) readNames(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, reservedSQL)
	if err != nil {
		return err
	}
	var word string
	if _, err := pgx.ForEachRow(rows, []any{&word}, func() error { s.reserved[word] = true; return nil }); err != nil {
		return err
	}
	schemas := []string{}
	for _, t := range s.tables {
		if s.taken[t.Schema] == nil {
			s.taken[t.Schema] = map[string]bool{}
			schemas = append(schemas, t.Schema)
		}
	}
	if rows, err = tx.Query(ctx, takenSQL, schemas); err != nil {
		return err
	}
	var schema, name string
	_, err = pgx.ForEachRow(rows, []any{&schema, &name}, func() error { s.taken[schema][name] = true; return nil })
	return err
}
