package schema

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
)

const (
	readsRows   = "SELECT"
	changesRows = "SELECT, UPDATE"
	// Who deletes rows has locked them before, which needs UPDATE.
	deletesRows = "SELECT, UPDATE, DELETE"
)

// grantedTables are the application's tables of one database that the worker works on, as the configuration has them: whether
// they are there, only the database knows.
func grantedTables(c *config.Config, settings config.Database, defs []definitions.Definition) []migrate.TableGrant {
	t := &tableGrants{schema: settings.Schema}
	for _, d := range defs {
		if livesIn(c, settings, d.Child, d.Database) {
			if d.OnDelete == definitions.Delete {
				t.add(d.Child, deletesRows)
			} else {
				t.add(d.Child, changesRows)
			}
		}
		if livesIn(c, settings, d.Parent, "") {
			t.add(d.Parent, readsRows)
		}
	}
	if settings.Name != c.Jobs.Database {
		return t.list
	}
	if c.GhostUsers.Enabled {
		for _, entry := range c.GhostUsers.Move {
			t.named(entry.Table, deletesRows)
		}
		for _, entry := range c.GhostUsers.Delete {
			t.named(entry.Table, deletesRows)
		}
		for _, entry := range c.GhostUsers.Nullify {
			t.named(entry.Table, changesRows)
		}
		t.below("users", migrate.Directly)
	}
	if c.PlaceholderUsers.Enabled {
		for _, entry := range c.PlaceholderUsers.References {
			t.named(entry.Table, readsRows)
		}
	}
	if c.AdjournedGroups.Enabled {
		t.below("groups", migrate.Anyhow)
		t.below("projects", migrate.Anyhow)
	}
	return t.list
}

// livesIn reports whether a table may be in a database: it is not said to be in another one.
func livesIn(c *config.Config, settings config.Database, name definitions.Name, said string) bool {
	if said != "" {
		return said == settings.Name
	}
	claims := func(one config.Database) bool {
		return loosefk.Site{Schema: one.Schema, Tables: one.Tables}.Claims(name)
	}
	return claims(settings) || !slices.ContainsFunc(c.Databases, claims)
}

type tableGrants struct {
	schema string
	list   []migrate.TableGrant
}

func (t *tableGrants) quoted(name definitions.Name) string {
	if name.Schema == "" {
		name.Schema = t.schema
	}
	return pgx.Identifier{name.Schema, name.Table}.Sanitize()
}

func (t *tableGrants) put(grant migrate.TableGrant) {
	if !slices.Contains(t.list, grant) {
		t.list = append(t.list, grant)
	}
}

func (t *tableGrants) add(name definitions.Name, privileges string) {
	t.put(migrate.TableGrant{Table: t.quoted(name), Privileges: privileges})
}

// named adds a table of a list. A name that is none is for config check to say.
func (t *tableGrants) named(text, privileges string) {
	if name, err := definitions.ParseName(text); err == nil {
		t.add(name, privileges)
	}
}

func (t *tableGrants) below(table, referring string) {
	t.put(migrate.TableGrant{Table: t.quoted(definitions.Name{Table: table}), Privileges: deletesRows, Referring: referring})
}
