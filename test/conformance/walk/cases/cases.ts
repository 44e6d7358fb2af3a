import { accessCases, auditCases } from './cases-access.ts'
import { advisoryCases } from './cases-advisories.ts'
import { accountAssociationCases } from './cases-account-associations.ts'
import { apiClientCases } from './cases-endpoints.ts'
import { catalogueCases } from './cases-catalogues.ts'
import { groupInviteCases } from './cases-group-invites.ts'
import { groupCases } from './cases-groups.ts'
import { identityProviderCases } from './cases-identity-providers.ts'
import { identityCases } from './cases-identities.ts'
import { imagesCases } from './cases-images.ts'
import { libraryCases } from './cases-libraries.ts'
import { mappingCases } from './cases-mappings.ts'
import { registryCases } from './cases-registry.ts'
import { roleBindingCases } from './cases-role-bindings.ts'
import { roleCases } from './cases-roles.ts'
import { securityAdvisoryCases } from './cases-security-advisories.ts'
import { subscriptionCases } from './cases-subscriptions.ts'
import { termsCases } from './cases-terms.ts'
import { advisoryV1Cases } from './v1/advisory-cases.ts'
import { iamV1Cases } from './v1/iam-cases.ts'
import { organisationV1Cases } from './v1/organisation-cases.ts'
import { registryV1Cases } from './v1/registry-cases.ts'
import { subscriptionV1Cases } from './v1/subscription-cases.ts'
import { accessOf, methodNamed, type Access, type MethodCase } from './method-case.ts'
import type { MethodRow } from '../../../../src/base/schema/method.ts'

/** One row for every method with a handler, by `<service>/<rpc>`. A method with a handler and without a row fails coverage.test.ts. */
export const cases: Readonly<Record<string, MethodCase>> = {
  ...apiClientCases,
  ...accessCases,
  ...groupCases,
  ...identityCases,
  ...roleCases,
  ...roleBindingCases,
  ...identityProviderCases,
  ...mappingCases,
  ...groupInviteCases,
  ...accountAssociationCases,
  ...auditCases,
  ...catalogueCases,
  ...termsCases,
  ...registryCases,
  ...imagesCases,
  ...subscriptionCases,
  ...advisoryCases,
  ...securityAdvisoryCases,
  ...libraryCases,
  ...advisoryV1Cases,
  ...iamV1Cases,
  ...organisationV1Cases,
  ...registryV1Cases,
  ...subscriptionV1Cases,
}

/** A row with its method. */
export interface Walked {
  readonly name: string
  readonly method: MethodRow
  readonly access: Access
  readonly row: MethodCase
}

/** All rows, for `test.each`. */
export const walk: readonly Walked[] = Object.entries(cases).map(([name, row]) => {
  const method = methodNamed(name)
  return { name, method, access: accessOf(method), row }
})
