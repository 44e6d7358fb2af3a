/** Who asked for access to which group last, and when: `x/access-request/<group>/<identity>`, milliseconds since 1970 as text. */
export const accessRequestPrefix = 'x/access-request/'

/** How long the same caller's repeated request is refused, in milliseconds (docs/spec/iam.md#group-lookup). */
export const accessWindowMs = 24 * 3600 * 1000
