package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// makerPatience is the timeout for deciding whether a creation can have created a role binding. After a timeout, it counts as possible.
const makerPatience = time.Second

// Role bindings show no tag. So only observations of a role binding show which unanswered creation, if any, created it. Until they are
// matched, all unanswered creations for the same identity in the same group are its possible makers.

func (r *record) makerKey() string {
	return join(r.parent, r.identity)
}

// findMakers returns the unanswered creations of role bindings, by group and identity.
func findMakers(history []*operation) map[string][]*operation {
	makers := map[string][]*operation{}
	for _, o := range history {
		if o.Action == "create" && o.Outcome == "unknown" && o.UID == "" && o.Kind == binding {
			key := join(o.Parent, o.Identity)
			makers[key] = append(makers[key], o)
		}
	}
	return makers
}

// creationBy returns the creation event of a record that one of these operations created. Its possible values are the requested ones.
func creationBy(makers ...*operation) *event {
	e := &event{verb: creates, client: makers[0].Client, call: makers[0].Call, ret: forever}
	for _, o := range makers {
		e.call = min(e.call, o.Call)
		if !slices.Contains(e.among, o.Value) {
			e.among = append(e.among, o.Value)
		}
	}
	if len(e.among) == 1 {
		e.value, e.among = e.among[0], nil
	}
	return e
}

// createBindings adds a creation event to each role binding that was seen but whose creation was not answered. It returns these role
// bindings by the key of their possible makers.
func (w *world) createBindings(makers map[string][]*operation) map[string][]*record {
	made := map[string][]*record{}
	for _, key := range sortedKeys(w.records) {
		r := w.records[key]
		by := makers[r.makerKey()]
		if r.kind != binding || r.create != nil || len(by) == 0 || r.firstLive() == forever {
			continue
		}
		r.create = creationBy(by...)
		r.events = append(r.events, r.create)
		made[r.makerKey()] = append(made[r.makerKey()], r)
	}
	return made
}

// matchMakers fails if the role bindings cannot all have different makers. It reduces the possible makers of each role binding to those
// that are part of a complete matching. The history of each role binding alone decides whether a maker fits; no order of several records
// is searched for.
func (w *world) matchMakers(made map[string][]*record, makers map[string][]*operation, lacked map[*record][]*operation) {
	for _, key := range sortedKeys(made) {
		fitting := [][]int{}
		matched := []*record{}
		for _, r := range made[key] {
			fits := []int{}
			for at, o := range makers[key] {
				if r.canBeMadeBy(o, lacked[r]) {
					fits = append(fits, at)
				}
			}
			if len(fits) == 0 {
				w.fail(r.name(), len(r.events), fmt.Sprintf("none of %d creations without an answer can have made it", len(makers[key])))
				continue
			}
			fitting, matched = append(fitting, fits), append(matched, r)
		}
		if !canMatch(fitting, len(makers[key])) {
			uids := []string{}
			for _, r := range matched {
				uids = append(uids, r.uid)
			}
			w.fail("makers "+key, len(uids), fmt.Sprintf("%d creations without an answer can't have made %s", len(makers[key]), strings.Join(uids, ", ")))
			continue
		}
		for at, r := range matched {
			*r.create = *creationBy(pickAll(makers[key], matching(fitting, at, len(makers[key])))...)
		}
	}
}

func (r *record) canBeMadeBy(o *operation, lacked []*operation) bool {
	if o.Call > r.firstLive() {
		return false
	}
	own := *r
	own.events = nil
	for _, e := range r.events {
		copied := *e
		if e == r.create {
			copied = *creationBy(o)
			own.create = &copied
		}
		own.events = append(own.events, &copied)
	}
	own.bound(lacked)
	p := own.partition()
	return porcupine.CheckOperationsTimeout(p.model(), p.operations, makerPatience) != porcupine.Illegal
}

// matching returns the makers that a record can have while every other record has a different one.
func matching(fitting [][]int, of int, makers int) []int {
	possible := []int{}
	for _, maker := range fitting[of] {
		fixed := slices.Clone(fitting)
		fixed[of] = []int{maker}
		if canMatch(fixed, makers) {
			possible = append(possible, maker)
		}
	}
	return possible
}

// canMatch returns true if each row can get a different one of its numbers, which are below count.
func canMatch(fitting [][]int, count int) bool {
	holders := make([]int, count)
	for at := range holders {
		holders[at] = -1
	}
	var give func(to int, tried []bool) bool
	give = func(to int, tried []bool) bool {
		for _, maker := range fitting[to] {
			if tried[maker] {
				continue
			}
			tried[maker] = true
			if holders[maker] < 0 || give(holders[maker], tried) {
				holders[maker] = to
				return true
			}
		}
		return false
	}
	for to := range fitting {
		if !give(to, make([]bool, count)) {
			return false
		}
	}
	return true
}

func pickAll[T any](from []T, numbers []int) []T {
	picked := []T{}
	for _, at := range numbers {
		picked = append(picked, from[at])
	}
	return picked
}
