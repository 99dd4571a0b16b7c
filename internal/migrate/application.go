package migrate

import (
	"context"
	_ "embed"
	"fmt"
)

//go:embed queries/write_application_tables.sql
var writeApplicationTablesSQL string

// optionalTables are the application's tables that functions read where they are there. The functions believe what migrations have
// noted, not a name: anybody may put a view of a free name into a schema in which all may create.
func optionalTables() []string {
	return []string{"application_settings", "group_group_links", groups, "members", ghostQueue}
}

func (s *session) writeApplicationTables(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.replacer.Replace(writeApplicationTablesSQL), s.db.TrackedSchema, optionalTables())
	if err != nil {
		return fmt.Errorf("note the application's tables: %w", err)
	}
	return nil
}
