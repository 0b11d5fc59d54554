-- alexnet-owt as one trained it in Torch7: modules in a Sequential, parameters in one flat tensor. No code of Deepstone.

require 'nn'

return function(weights, images, labels, threads)
   torch.setdefaulttensortype('torch.FloatTensor')
   torch.setnumthreads(threads)
   local net, names = nn.Sequential(), {}
   local function add(name, module)
      net:add(module)
      names[name] = module
   end
   add('conv1', nn.SpatialConvolution(3, 64, 11, 11, 4, 4, 2, 2))
   net:add(nn.ReLU(true)):add(nn.SpatialMaxPooling(3, 3, 2, 2))
   add('conv2', nn.SpatialConvolution(64, 192, 5, 5, 1, 1, 2, 2))
   net:add(nn.ReLU(true)):add(nn.SpatialMaxPooling(3, 3, 2, 2))
   add('conv3', nn.SpatialConvolution(192, 384, 3, 3, 1, 1, 1, 1))
   net:add(nn.ReLU(true))
   add('conv4', nn.SpatialConvolution(384, 256, 3, 3, 1, 1, 1, 1))
   net:add(nn.ReLU(true))
   add('conv5', nn.SpatialConvolution(256, 256, 3, 3, 1, 1, 1, 1))
   net:add(nn.ReLU(true)):add(nn.SpatialMaxPooling(3, 3, 2, 2)):add(nn.View(9216))
   add('fc6', nn.Linear(9216, 4096))
   net:add(nn.ReLU(true))
   add('fc7', nn.Linear(4096, 4096))
   net:add(nn.ReLU(true))
   add('fc8', nn.Linear(4096, 1000))
   for name, module in pairs(names) do
      module.weight:copy(weights[name].weight)
      module.bias:copy(weights[name].bias)
   end
   net:get(1).gradInput = nil  -- nobody needs the gradient of the image
   local criterion = nn.CrossEntropyCriterion()
   local parameters, gradients = net:getParameters()
   local velocity, last = gradients:clone():zero(), 0

   local function step()
      gradients:zero()
      local output = net:forward(images)
      last = criterion:forward(output, labels)
      net:backward(images, criterion:backward(output, labels))
      velocity:mul(0.9):add(gradients)
      parameters:add(-1e-4, velocity)
   end

   return step, function() return last end
end
