package main

import (
	"fmt"
	"math/bits"
)

// set is a set of members by number, stored as bits.
type set string

func (s set) has(at int) bool {
	return s[at/8]&(1<<(at%8)) != 0
}

func (s set) with(at int) set {
	bytes := []byte(s)
	bytes[at/8] |= 1 << (at % 8)
	return set(bytes)
}

func (s set) without(other set) set {
	bytes := []byte(s)
	for at := range bytes {
		bytes[at] &^= other[at]
	}
	return set(bytes)
}

func (s set) String() string {
	count := 0
	for at := range len(s) {
		count += bits.OnesCount8(s[at])
	}
	return fmt.Sprintf("%d members", count)
}

func uidsOf(records []*record, members set) []string {
	uids := []string{}
	for at, r := range records {
		if members.has(at) {
			uids = append(uids, r.uid)
		}
	}
	return uids
}

// membersPartition returns the check of the set of records of one kind in one group. Creations add a member, deletions remove one, reads
// test one, and lists show all.
func membersPartition(of string, records []*record, lists []*operation, removals []removal) partition {
	p := partition{name: "members " + of}
	numbers := map[string]int{}
	for at, r := range records {
		numbers[r.uid] = at
	}
	empty := set(make([]byte, (len(records)+7)/8))
	p.initial = empty
	for at, r := range records {
		for _, e := range r.events {
			if step := memberStep(e, at, empty); step != nil && !e.idle && !e.listed {
				p.add(e.client, e.call, e.ret, step, join(r.uid, e.String()))
			}
		}
	}
	for _, o := range lists {
		shown := empty
		for _, member := range o.Members {
			if at, found := numbers[member.UID]; found {
				shown = shown.with(at)
			}
		}
		p.addStep(o.Client, o.Call, o.returned(), step{
			apply: func(state any) (bool, any) { return state.(set) == shown, state },
			text:  fmt.Sprintf("list[client %d, %d..%d] shows %s", o.Client, o.Call, o.returned(), shown),
			differs: func(state any) string {
				return fmt.Sprintf("without %v and with %v", uidsOf(records, state.(set).without(shown)), uidsOf(records, shown.without(state.(set))))
			},
		})
	}
	for _, gone := range removals {
		addRemoval(&p, gone, numbers, empty)
	}
	return p
}

// removal is the set of role bindings that are removed together with an identity or a group.
type removal struct {
	of      *operation
	records []*record
	events  []*event
}

func addRemoval(p *partition, gone removal, numbers map[string]int, empty set) {
	mask, idle, ret := empty, true, int64(forever)
	for at, r := range gone.records {
		mask = mask.with(numbers[r.uid])
		idle = idle && gone.events[at].idle
		ret = min(ret, gone.events[at].ret)
	}
	if idle {
		return
	}
	step := func(state any) (bool, any) { return true, state.(set).without(mask) }
	p.add(gone.of.Client, gone.of.Call, ret, step, fmt.Sprintf("removal[client %d, %d..] of %s with %s", gone.of.Client, gone.of.Call, mask, gone.of.UID))
}

// memberStep returns how an event of the record with this number changes the set. It returns nil if the event does not change it, or is
// part of a removal of several records.
func memberStep(e *event, at int, empty set) func(any) (bool, any) {
	only := empty.with(at)
	switch e.verb {
	case creates:
		return func(state any) (bool, any) { return true, state.(set).with(at) }
	case deletes:
		return func(state any) (bool, any) {
			s := state.(set)
			return !e.sure || s.has(at), s.without(only)
		}
	case updates:
		if !e.sure {
			return nil
		}
		return func(state any) (bool, any) { return state.(set).has(at), state }
	case reads, isPresent, isStale:
		return func(state any) (bool, any) { return state.(set).has(at), state }
	case isAbsent:
		return func(state any) (bool, any) { return !state.(set).has(at), state }
	case vanishes:
	}
	return nil
}
