-- Layers of the graph as modules of Torch7's nn, and the pieces of a step that run them one after the other.
--
-- nn pads both ends of a dimension equally, by at most half a pool's window, and a pool that rounds up without padding
-- may end in a window outside the image, whose gradient it would write before its array. Where the graph asks for
-- anything else, the image is padded by a module of our own.

local nn = require 'nn'

local LOSS = 'softmax_cross_entropy'
-- Layers whose output their own backward does not read, so that a relu may write over it.
local OUTPUT_UNREAD = {
   conv = true, dense = true, batch_norm = true, max_pool = true, average_pool = true, global_pool = true, add = true,
   concat = true,
}

local own = {}  -- modules that nn does not have

-- Adds rows and columns of one value around the image.
local Padded, padded_parent = torch.class('own.Padded', 'nn.Module', own)

function Padded:__init(pad, value)
   padded_parent.__init(self)
   self.top, self.bottom, self.left, self.right = unpack(pad)
   self.value = value
end

function Padded:inner(whole, input)
   return whole:narrow(3, 1 + self.top, input:size(3)):narrow(4, 1 + self.left, input:size(4))
end

function Padded:updateOutput(input)
   local height, width = input:size(3) + self.top + self.bottom, input:size(4) + self.left + self.right
   self.output:resize(input:size(1), input:size(2), height, width):fill(self.value)
   self:inner(self.output, input):copy(input)
   return self.output
end

function Padded:updateGradInput(input, gradOutput)
   self.gradInput:resizeAs(input):copy(self:inner(gradOutput, input))
   return self.gradInput
end

-- Multiplies each pixel by a constant of its own, the same in all channels.
local Scaled, scaled_parent = torch.class('own.Scaled', 'nn.Module', own)

function Scaled:__init(factors)
   scaled_parent.__init(self)
   self.factors = factors
end

function Scaled:times(into, from)
   local factors = self.factors:view(1, 1, from:size(3), from:size(4)):expandAs(from)
   return into:resizeAs(from):cmul(from, factors)
end

function Scaled:updateOutput(input)
   return self:times(self.output, input)
end

function Scaled:updateGradInput(_, gradOutput)
   return self:times(self.gradInput, gradOutput)
end

-- The local response norm over the pixels around each, or, with a size of 1, of the pixel itself. nn has only the one
-- across channels, which fails for a size of 1.
local PixelNorm, pixel_parent = torch.class('own.PixelNorm', 'nn.Module', own)

function PixelNorm:__init(size, alpha, beta, k)
   pixel_parent.__init(self)
   self.alpha, self.beta, self.k = alpha, beta, k
   self.scale, self.product = torch.Tensor(), torch.Tensor()
   local pad = (size - 1) / 2
   self.mean = nn.SpatialAveragePooling(size, size, 1, 1, pad, pad)  -- by the whole size, also at the border
end

function PixelNorm:updateOutput(input)
   self.product:resizeAs(input):cmul(input, input)
   self.scale:resizeAs(input):copy(self.mean:updateOutput(self.product)):mul(self.alpha):add(self.k)
   self.output:resizeAs(input):pow(self.scale, -self.beta):cmul(input)
   return self.output
end

function PixelNorm:updateGradInput(input, gradOutput)
   self.product:resizeAs(input):cmul(gradOutput, self.output):cdiv(self.scale)
   local around = self.mean:updateOutput(self.product)
   self.gradInput:resizeAs(input):pow(self.scale, -self.beta):cmul(gradOutput)
   self.gradInput:addcmul(-2 * self.alpha * self.beta, input, around)
   return self.gradInput
end

-- The mean softmax cross-entropy, times the layer's weight.
local Loss, loss_parent = torch.class('own.Loss', 'nn.Module', own)

function Loss:__init(weight, labels)
   loss_parent.__init(self)
   self.weight_of_loss, self.labels = weight, labels
   self.softmax, self.criterion = nn.LogSoftMax(), nn.ClassNLLCriterion()
end

function Loss:updateOutput(input)
   self.softmax:updateOutput(input)
   self.loss = self.criterion:updateOutput(self.softmax.output, self.labels) * self.weight_of_loss
   return self.loss
end

-- `upstream` is a number.
function Loss:updateGradInput(input, upstream)
   local gradient = self.criterion:updateGradInput(self.softmax.output, self.labels)
   self.gradInput = self.softmax:updateGradInput(input, gradient):mul(self.weight_of_loss * upstream)
   return self.gradInput
end

local function chained(...)
   local modules = {...}
   if #modules == 1 then
      return modules[1]
   end
   local chain = nn.Sequential()
   for _, module in ipairs(modules) do
      chain:add(module)
   end
   return chain
end

local function is_even(pad)
   return pad[1] == pad[2] and pad[3] == pad[4]
end

local function convolution(layer, inputs, outputs)
   local kernel, stride, pad, dilation = layer.kernel, layer.stride, layer.pad, layer.dilation
   local rows, columns = 0, 0
   if is_even(pad) then
      rows, columns = pad[1], pad[3]
   end
   local module
   if dilation[1] == 1 and dilation[2] == 1 then
      module = nn.SpatialConvolution(inputs, outputs, kernel[2], kernel[1], stride[2], stride[1], columns, rows)
   else
      module = nn.SpatialDilatedConvolution(
         inputs, outputs, kernel[2], kernel[1], stride[2], stride[1], columns, rows, dilation[2], dilation[1]
      )
   end
   return layer.parameters.bias and module or module:noBias()
end

local lower = {}

-- Groups are what Torch7's users made of them: a convolution for each, on its part of the channels, joined again.
function lower.conv(layer, source)
   local pad = is_even(layer.pad) and {} or {own.Padded(layer.pad, 0)}
   local groups = layer.groups
   if groups == 1 then
      pad[#pad + 1] = convolution(layer, source[1], layer.channels)
      return chained(unpack(pad))
   end
   local inputs, outputs, joined = source[1] / groups, layer.channels / groups, nn.Concat(2)
   for group = 0, groups - 1 do
      local part = nn.Narrow(2, 1 + group * inputs, inputs)
      joined:add(chained(part, convolution(layer, inputs, outputs)))
   end
   pad[#pad + 1] = joined
   return chained(unpack(pad))
end

function lower.dense(layer, source)
   return nn.Linear(source[1], layer.features, layer.parameters.bias ~= nil)
end

function lower.batch_norm(layer, source)
   return nn.SpatialBatchNormalization(source[1], layer.epsilon, layer.momentum)
end

function lower.relu(_, _, network, in_place)
   return nn.ReLU(in_place)
end

-- Whether nn's own pool does what the graph asks for.
local function pools_alike(layer, source)
   local kernel, stride, pad = layer.kernel, layer.stride, layer.pad
   if not is_even(pad) then
      return false
   end
   for side = 1, 2 do
      local before = pad[2 * side]
      local room = source[1 + side] + 2 * before - kernel[side]
      local windows = (layer.ceil_mode and math.ceil or math.floor)(room / stride[side]) + 1
      if before > kernel[side] / 2 or windows ~= layer.output[1 + side] then
         return false
      end
   end
   return true
end

-- The padding with which the windows fit without rounding up.
local function whole_windows(layer, source)
   local pad = {}
   for side = 1, 2 do
      local before = layer.pad[2 * side - 1]
      local reach = (layer.output[1 + side] - 1) * layer.stride[side] + layer.kernel[side]
      pad[2 * side - 1], pad[2 * side] = before, math.max(0, reach - before - source[1 + side])
   end
   return pad
end

function lower.max_pool(layer, source)
   local kernel, stride, pad = layer.kernel, layer.stride, layer.pad
   if pools_alike(layer, source) then
      local pool = nn.SpatialMaxPooling(kernel[2], kernel[1], stride[2], stride[1], pad[3], pad[1])
      return layer.ceil_mode and pool:ceil() or pool
   end
   local pool = nn.SpatialMaxPooling(kernel[2], kernel[1], stride[2], stride[1])
   return chained(own.Padded(whole_windows(layer, source), -math.huge), pool)
end

-- What turns a mean over the whole window into one over the places that count.
local function divisors(layer, source)
   local counts = {}
   for side = 1, 2 do
      local before, size = layer.pad[2 * side - 1], source[1 + side]
      local first = layer.count_pad and -before or 0
      local stop = size + (layer.count_pad and layer.pad[2 * side] or 0)
      counts[side] = torch.Tensor(layer.output[1 + side])
      for window = 1, layer.output[1 + side] do
         local start = (window - 1) * layer.stride[side] - before
         counts[side][window] = math.min(start + layer.kernel[side], stop) - math.max(start, first)
      end
   end
   local area = layer.kernel[1] * layer.kernel[2]
   return torch.ger(counts[1], counts[2]):pow(-1):mul(area)
end

function lower.average_pool(layer, source)
   local kernel, stride, pad = layer.kernel, layer.stride, layer.pad
   if pools_alike(layer, source) then
      local pool = nn.SpatialAveragePooling(kernel[2], kernel[1], stride[2], stride[1], pad[3], pad[1])
      pool = layer.count_pad and pool:setCountIncludePad() or pool:setCountExcludePad()
      return layer.ceil_mode and pool:ceil() or pool
   end
   local pool = nn.SpatialAveragePooling(kernel[2], kernel[1], stride[2], stride[1])
   return chained(own.Padded(whole_windows(layer, source), 0), pool, own.Scaled(divisors(layer, source)))
end

function lower.global_pool(_, source)
   return nn.SpatialAveragePooling(source[3], source[2], 1, 1)
end

function lower.lrn(layer)
   if layer.within_channel or layer.size == 1 then
      return own.PixelNorm(layer.size, layer.alpha, layer.beta, layer.k)
   end
   return nn.SpatialCrossMapLRN(layer.size, layer.alpha, layer.beta, layer.k)
end

function lower.dropout(layer, _, network)
   return network.dropout and nn.Dropout(layer.rate) or nn.Identity()
end

function lower.add()
   return nn.CAddTable()
end

function lower.concat()
   return nn.JoinTable(2)
end

function lower.flatten(_, source)
   return nn.View(source[1] * source[2] * source[3]):setNumInputDims(3)
end

lower[LOSS] = function(layer, _, network)
   return own.Loss(layer.weight, network.labels)
end

-- The network, or any of its layers. `modules` by name; `order` has the names.
local Network = {}
Network.__index = Network

-- `described` has `layers` as in the worker's graph, `shapes` and `takers` of all layers of the model by name, `labels`,
-- `dropout`, `training`.
function Network.new(described)
   local self = setmetatable({modules = {}, order = {}, losses = {}}, Network)
   self.labels, self.dropout = described.labels, described.dropout
   self.layers = described.layers
   for _, layer in ipairs(described.layers) do
      if layer.op ~= 'input' then
         local first = layer.inputs[1]
         local in_place = described.in_place and OUTPUT_UNREAD[described.ops[first]] and described.takers[first] == 1
         local module = lower[layer.op](layer, described.shapes[first], self, in_place or false)
         if described.training then
            module:training()
         else
            module:evaluate()
         end
         self.modules[layer.name] = module
         self.order[#self.order + 1] = layer.name
         if layer.op == LOSS then
            self.losses[#self.losses + 1] = module
         end
      end
   end
   return self
end

Network.ops = lower

-- The tensors of each parameter of a layer: one, or one for each group. `gradients`: theirs.
function Network:tensors(layer, gradients)
   local found, module = {}, self.modules[layer.name]
   local names = gradients and {weight = 'gradWeight', bias = 'gradBias'} or {weight = 'weight', bias = 'bias'}
   for name in pairs(layer.parameters) do
      found[name] = {}
      for _, holder in ipairs(module:listModules()) do
         if torch.isTensor(holder.weight) then
            table.insert(found[name], holder[names[name]])
         end
      end
   end
   return found
end

-- Copies initial values into the parameters; `value_of(layer, name)` returns a tensor.
function Network:load(value_of)
   for _, layer in ipairs(self.layers) do
      if next(layer.parameters) then
         for name, parts in pairs(self:tensors(layer)) do
            local whole, first = value_of(layer.name, name), 1
            for _, part in ipairs(parts) do
               part:copy(whole:narrow(1, first, part:size(1)))
               first = first + part:size(1)
            end
         end
      end
      if layer.op == 'batch_norm' then
         self.modules[layer.name].running_mean:zero()
         self.modules[layer.name].running_var:fill(1)
      end
   end
end

-- All parameters and their gradients as two flat tensors, in whose storage they lie from now on.
function Network:flat()
   local holder = nn.Sequential()
   for _, name in ipairs(self.order) do
      holder:add(self.modules[name])
   end
   return holder:getParameters()
end

function Network:loss()
   local total = 0
   for _, loss in ipairs(self.losses) do
      total = total + loss.loss
   end
   return total
end

return {Network = Network, LOSS = LOSS}
