package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/problem"
)

// Scope is which tombstones or definitions a command is about.
type Scope struct {
	Database string
	Table    string
}

// Flags adds --database and --table, the latter with the help of a command.
func (s *Scope) Flags(cmd *cobra.Command, table string) {
	cmd.Flags().StringVar(&s.Database, "database", "", "`NAME` of one configured database (default: all)")
	cmd.Flags().StringVar(&s.Table, "table", "", table)
}

// Name reads --table as definitions do.
func (s *Scope) Name() (definitions.Name, error) {
	if s.Table == "" {
		return definitions.Name{}, nil
	}
	name, err := definitions.ParseName(s.Table)
	if err != nil {
		return name, Usage(fmt.Errorf("--table %s %w", s.Table, err))
	}
	return name, nil
}

// Chosen are the databases that a command is about. All of them have to be there.
func (s *Scope) Chosen(all *installation.Connections) ([]database.Database, error) {
	chosen := all.Databases
	if s.Database != "" {
		name, err := ChooseDatabase(all.Config, s.Database)
		if err != nil {
			return nil, err
		}
		chosen = []database.Database{all.Database(name)}
	}
	for _, db := range chosen {
		if err := all.Down[db.Name]; err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// In is the name as tombstones of a database have it, or "" where --table was not given.
func (s *Scope) In(ctx context.Context, db database.Database) (string, error) {
	name, err := s.Name()
	if err != nil || name == (definitions.Name{}) {
		return "", err
	}
	var recorded string
	const sql = "SELECT pg_catalog.format('%I.%I', $1::pg_catalog.text, $2::pg_catalog.text)"
	err = db.Pool.QueryRow(ctx, sql, cmp.Or(name.Schema, db.Names.Tracked), name.Table).Scan(&recorded)
	return recorded, problem.Doing(err, "quote name of table %s", name)
}
