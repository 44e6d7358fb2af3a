/** The tests of CSAF 2.0: the schema, and the mandatory tests of its chapter 6.1. The package has no types. */
declare module '@secvisogram/csaf-validator-lib/basic.js' {
  const tests: Readonly<Record<string, (document: unknown) => unknown>>
  export = tests
}
