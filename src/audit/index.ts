// What other folders may import of the audit trail. They import nothing else of it.
export { IndexThread } from './index-thread.ts'
export { listAuditEvents } from './list-audit-events.ts'
export { AuditSegments, nameFrom, type NamedSegment } from './segments.ts'
