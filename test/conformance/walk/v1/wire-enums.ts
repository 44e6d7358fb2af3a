/** The names and numbers of enums, by the name of the enum in the tables. Each value is `<name> <number>`. */
export type WireEnums = Readonly<Record<string, string>>

const falsePositiveTypes = [
  'UNSPECIFIED 0',
  'VULNERABILITY_RECORD_ANALYSIS_CONTESTED 1',
  'COMPONENT_VULNERABILITY_MISMATCH 2',
  'VULNERABLE_CODE_VERSION_NOT_USED 3',
  'VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE 4',
  'VULNERABLE_CODE_NOT_IN_EXECUTION_PATH 5',
  'VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY 6',
  'INLINE_MITIGATIONS_EXIST 7',
].join(', ')

const referenceTypes = 'UNSPECIFIED 0, ADVISORY 1, ARTICLE 2, DETECTION 3, DISCUSSION 4, REPORT 5, FIX 6, INTRODUCED 7, PACKAGE 8, EVIDENCE 9, WEB 10'
const reviewStates = 'PENDING 1, APPROVED 2, REQUEST_CHANGES 3, REJECTED 4'
const eventTypes =
  'DETECTION 1, TRUE_POSITIVE_DETERMINATION 2, FIXED 3, FALSE_POSITIVE_DETERMINATION 4, ANALYSIS_NOT_PLANNED 5, FIX_NOT_PLANNED 6, PENDING_UPSTREAM_FIX 7, PATCHED 8'

/** Returns the values of an enum of version 2: their names have the name of the enum. */
function prefixed(prefix: string, values: string): string {
  return values.replaceAll(/[A-Z]\w* /g, (name) => `${prefix}_${name}`)
}

/** Enums that both versions share. */
const shared: WireEnums = {
  OrgKind: prefixed('ORG_KIND', 'UNSPECIFIED 0, STARTER 1, CUSTOMER 2, DEV 3, INFRA 4, AWS_MARKETPLACE 5'),
  OrgStatus: prefixed('ORG_STATUS', 'UNSPECIFIED 0, INITIALIZING 1, READY 2, SUSPENDED 3'),
  CorrelationRule: prefixed('CORRELATION_RULE', 'UNSPECIFIED 0, SUB_EQUALS_EXTERNAL_ID 1, OID_EQUALS_EXTERNAL_ID 2'),
  CredentialState: prefixed('CREDENTIAL_STATE', 'UNSPECIFIED 0, NOT_ISSUED 1, LIVE 2, EXPIRED 3, REVOKED 4, ROTATING 5'),
}

/** The enums of version 1, read from the documents of the wire contract. */
export const v1Enums: WireEnums = {
  ...shared,
  AccountType: 'UNKNOWN 0, GOOGLE 1, AMAZON 2, AZURE 3',
  CatalogTier: 'UNKNOWN 0, APPLICATION 4, BASE 5, FIPS 6, AI 7, DEVTOOLS 8, COMMERCIAL 9',
  CountSeverity: 'UNKNOWN 0, LOW 1, MEDIUM 2, HIGH 3, CRITICAL 4, NEGLIGIBLE 5',
  Ecosystem: 'UNKNOWN 0, JAVA 1, PYTHON 2, JAVASCRIPT 3',
  EventTypeFilter: `UNKNOWN 0, ${eventTypes}`,
  FalsePositiveType: falsePositiveTypes,
  FixState: 'UNKNOWN 0, FIXED 1, NOT_FIXED 2, WONT_FIX 3',
  GraceStatus: prefixed('GRACE', 'NOT_ELIGIBLE 0, ELIGIBLE 1, ACTIVE 2, BROKEN 3, EXPIRED 4'),
  OrderBy: `UNORDERED 0, ${['ID', 'CREATED_AT', 'ALIASES', 'UPDATED_AT', 'DELETED_AT'].map((field, at) => `${field}_ASC ${2 * at + 1}, ${field}_DESC ${2 * at + 2}`).join(', ')}`,
  Ready: 'UNKNOWN 0, Ready 1, NotReady 2',
  RecordSeverity: 'UNKNOWN 0, LOW 1, MEDIUM 2, HIGH 3, CRITICAL 4',
  ReferenceType: referenceTypes,
  ReviewStatus: `UNKNOWN 0, ${reviewStates}`,
  ScannerName: 'UNKNOWN 0, GRYPE 1, TRIVY 2',
  ServicePrincipal: 'UNSPECIFIED 0',
  SeverityType: 'UNSPECIFIED 0, CVSS_V2 1, CVSS_V3 2, CVSS_V4 3, UBUNTU 4',
  TagStatus: prefixed('TAG', 'ACTIVE 0, IN_GRACE 1, INACTIVE 2'),
}

/** The enums of version 2. */
export const v2Enums: WireEnums = {
  ...shared,
  AccountProviderType: prefixed('ACCOUNT_PROVIDER_TYPE', 'UNSPECIFIED 0, GOOGLE 1, AMAZON 2, AZURE 3'),
  CatalogTier: prefixed('CATALOG_TIER', 'UNSPECIFIED 0, APPLICATION 1, BASE 2, FIPS 3, AI 4, DEVTOOLS 5, COMMERCIAL 6'),
  CheckStatus: prefixed('CHECK_STATUS', 'UNSPECIFIED 0, READY 1, NOT_READY 2'),
  Ecosystem: prefixed('ECOSYSTEM', 'UNSPECIFIED 0, JAVA 1, PYTHON 2'),
  EventTypeFilter: prefixed('EVENT_TYPE_FILTER', `UNSPECIFIED 0, ${eventTypes}`),
  FalsePositiveType: prefixed('TYPE', falsePositiveTypes),
  ReferenceType: prefixed('TYPE', referenceTypes),
  RelationshipType: prefixed('RELATIONSHIP_TYPE', 'UNSPECIFIED 0, CLAIM_MATCH 1, STATIC 2, AWS_IDENTITY 3, SERVICE_PRINCIPAL 4'),
  ReviewState: prefixed('REVIEW_STATE', `UNSPECIFIED 0, ${reviewStates}`),
  ServicePrincipal: 'SERVICE_PRINCIPAL_UNSPECIFIED 0',
  SeverityType: prefixed('TYPE', 'UNSPECIFIED 0, CVSS_V2 1, CVSS_V3 2, CVSS_V4 3'),
}
