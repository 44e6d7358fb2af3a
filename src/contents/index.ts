// What other folders may import from here.
export { packagesOfLayers, type LayerContents, type SkippedFile } from './layers/packages-of-layers.ts'
