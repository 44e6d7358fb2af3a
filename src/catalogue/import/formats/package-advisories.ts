import { create } from '@bufbuild/protobuf'
import {
  AdvisoryEvent_AnalysisNotPlannedSchema,
  AdvisoryEvent_Detection_NVDAPISchema,
  AdvisoryEvent_Detection_ScanV1Schema,
  AdvisoryEvent_DetectionSchema,
  AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive,
} from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { DocumentFormat } from '../format.ts'
import { databaseOf, isMembers, listAt, membersOf, nameAt, namesAt, optionalNameAt, RefusedDocument, timeAt, type Members } from '../members.ts'
import { findings, maxStatements, noteAt, StatementCollector, vulnerabilityFrom, type Finding } from './statements.ts'

const falsePositives: ReadonlyMap<unknown, FalsePositive> = new Map([
  ['vulnerability-record-analysis-contested', FalsePositive.VULNERABILITY_RECORD_ANALYSIS_CONTESTED],
  ['component-vulnerability-mismatch', FalsePositive.COMPONENT_VULNERABILITY_MISMATCH],
  ['vulnerable-code-version-not-used', FalsePositive.VULNERABLE_CODE_VERSION_NOT_USED],
  ['vulnerable-code-not-included-in-package', FalsePositive.VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE],
  ['vulnerable-code-not-in-execution-path', FalsePositive.VULNERABLE_CODE_NOT_IN_EXECUTION_PATH],
  ['vulnerable-code-cannot-be-controlled-by-adversary', FalsePositive.VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY],
  ['inline-mitigations-exist', FalsePositive.INLINE_MITIGATIONS_EXIST],
])

const named = (data: Members, key: string): string => optionalNameAt(data, key, `events.data.${key}`)

/** How a vulnerability was found. */
const detections: ReadonlyMap<unknown, (data: Members) => Finding> = new Map([
  ['manual', () => findings.detected()],
  [
    'nvdapi',
    (data: Members): Finding => {
      const value = create(AdvisoryEvent_Detection_NVDAPISchema, { cpeSearched: named(data, 'cpeSearched'), cpeFound: named(data, 'cpeFound') })
      return { case: 'detection', value: create(AdvisoryEvent_DetectionSchema, { type: { case: 'nvdapi', value } }) }
    },
  ],
  [
    'scan/v1',
    (data: Members): Finding => {
      const value = create(AdvisoryEvent_Detection_ScanV1Schema, {
        scanner: named(data, 'scanner'),
        subpackage: named(data, 'subpackageName'),
        componentId: named(data, 'componentID'),
        component: named(data, 'componentName'),
        componentVersion: named(data, 'componentVersion'),
        componentType: named(data, 'componentType'),
        componentLocation: named(data, 'componentLocation'),
      })
      return { case: 'detection', value: create(AdvisoryEvent_DetectionSchema, { type: { case: 'scanv1', value } }) }
    },
  ],
])

const noteIn = (data: Members): string => noteAt(data, 'note', 'events.data.note')

/** A row for each type of event. */
const eventTypes: ReadonlyMap<unknown, (data: Members) => Finding> = new Map([
  [
    'detection',
    (data: Members): Finding => {
      const read = detections.get(data['type'])
      if (read === undefined) throw new RefusedDocument('events.data.type of a detection is unknown')
      return read(membersOf(data['data'] ?? {}, 'events.data.data'))
    },
  ],
  ['true-positive-determination', (data: Members) => findings.affected(noteIn(data))],
  [
    'false-positive-determination',
    (data: Members): Finding => {
      const type = falsePositives.get(data['type'])
      if (type === undefined) throw new RefusedDocument('events.data.type of a false positive is unknown')
      return findings.notAffected(type, noteIn(data))
    },
  ],
  ['fixed', (data: Members) => findings.fixed(nameAt(data, 'fixed-version', 'events.data.fixed-version'))],
  ['fix-not-planned', (data: Members) => findings.fixNotPlanned(noteIn(data))],
  [
    'analysis-not-planned',
    (data: Members): Finding => ({ case: 'analysisNotPlanned', value: create(AdvisoryEvent_AnalysisNotPlannedSchema, { note: noteIn(data) }) }),
  ],
  ['pending-upstream-fix', (data: Members) => findings.pendingUpstreamFix(noteIn(data))],
])

function findingOf(event: Members): Finding {
  const read = eventTypes.get(event['type'])
  if (read === undefined) throw new RefusedDocument('events.type is unknown')
  return read(membersOf(event['data'] ?? {}, 'events.data'))
}

/**
 * Advisories of one package of a distribution that melange builds: one advisory for each vulnerability, with its events as they are
 * (docs/spec/advisories.md#advisories-of-packages).
 */
export const packageAdvisories: DocumentFormat = {
  name: 'package advisories',
  recognises: (document) => 'schema-version' in document && isMembers(document['package']),
  rowsOf: (document, context) => {
    const version = document['schema-version']
    if (typeof version !== 'string' || !/^v?2(?:\.|$)/.test(version)) throw new RefusedDocument('schema-version is not 2')
    const name = nameAt(membersOf(document['package'], 'package'), 'name', 'package.name')
    const collector = new StatementCollector({ form: 'package', issuer: name, group: context.group(), ecosystem: context.ecosystem, authorOf: databaseOf })
    const artifact = { identifier: name, name, type: 'apk', version: '', architecture: '' }
    for (const item of listAt(document, 'advisories', { where: 'advisories', max: maxStatements })) {
      const advisory = membersOf(item, 'advisories')
      const vulnerability = vulnerabilityFrom(nameAt(advisory, 'id', 'advisories.id'), namesAt(advisory, 'aliases', 'advisories.aliases'))
      const events = listAt(advisory, 'events', { where: 'advisories.events' })
      if (events.length === 0) throw new RefusedDocument(`${vulnerability.id} has no events`)
      for (const member of events) {
        const event = membersOf(member, 'advisories.events')
        const time = timeAt(event, 'timestamp')
        if (time === undefined) throw new RefusedDocument('events.timestamp is missing')
        collector.add({ vulnerability, artifact, component: artifact, location: '', time, findings: [findingOf(event)] })
      }
    }
    return collector.rows()
  },
}
