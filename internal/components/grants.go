package components

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/component"
	"sexton/internal/definitions"
	"sexton/internal/migrate"
)

const (
	readsRows   = "SELECT"
	changesRows = "SELECT, UPDATE"
	// A deleted row has been locked before, which needs UPDATE.
	deletesRows = "SELECT, UPDATE, DELETE"
)

// Grants are the application's tables of one database that the worker works on, as the configuration has them: whether
// they are there, only the database knows.
func Grants(g component.Granting) (list []migrate.TableGrant) {
	for _, one := range all {
		if !one.In(g.Config, g.Database.Name) || one.Grants == nil {
			continue
		}
		for _, grant := range one.Grants(g) {
			if !slices.Contains(list, grant) {
				list = append(list, grant)
			}
		}
	}
	return list
}

// grants collects the tables of one component.
type grants struct {
	schema string
	list   []migrate.TableGrant
}

func (t *grants) quoted(name definitions.Name) string {
	if name.Schema == "" {
		name.Schema = t.schema
	}
	return pgx.Identifier{name.Schema, name.Table}.Sanitize()
}

func (t *grants) add(name definitions.Name, privileges string) {
	t.list = append(t.list, migrate.TableGrant{Table: t.quoted(name), Privileges: privileges})
}

// named adds a table of a list. A text that is no name is for config check to say.
func (t *grants) named(text, privileges string) {
	if name, err := definitions.ParseName(text); err == nil {
		t.add(name, privileges)
	}
}

func (t *grants) below(table, referring string) {
	t.list = append(t.list, migrate.TableGrant{Table: t.quoted(definitions.Name{Table: table}), Privileges: deletesRows, Referring: referring})
}
